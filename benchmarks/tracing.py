"""How long a model takes to trace, optimise and export, and how many stage artefacts its layers share.

    python benchmarks/tracing.py                        # a 64-layer GCNII and a 2-layer GCN
    python benchmarks/tracing.py --layers 16 --rounds 5

Medians over rounds, in one process; the first round, which imports and warms JAX's caches, is printed apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from flax import nnx

from dorylax.layers import GCN, GCNII
from dorylax.program import DataSpec, RowSpec, optimise, trace
from harness.command_line import parsed, parser_of

FEATURES, LABELS = RowSpec("vertex", (602,)), RowSpec("vertex", (), "int32")
SPEC = DataSpec((FEATURES,), LABELS, self_loops="none", num_vertices=230_000, num_edges=114_800_000)


def measure(name: str, make: Callable[[], Any], rounds: int) -> None:
    """Prints one line."""
    traced, optimised = [], []
    for _ in range(rounds + 1):
        model = make()
        begin = time.perf_counter()
        program = trace(model, SPEC)
        middle = time.perf_counter()
        program = optimise(program)
        traced.append(middle - begin)
        optimised.append(time.perf_counter() - middle)
    begin = time.perf_counter()
    stage_set = program.export()
    exported = time.perf_counter() - begin
    print(
        f"{name:<18} trace {statistics.median(traced[1:]):5.2f} s (first {traced[0]:.2f} s)   "
        f"passes {statistics.median(optimised[1:]):5.2f} s   export {exported:5.2f} s   "
        f"{len(stage_set.stages)} stages, {len(stage_set.artefacts)} artefacts",
        flush=True,
    )


def main() -> None:
    """Measures."""
    parser = parser_of(__doc__)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parsed(parser, layers=2, rounds=1)
    layers = arguments.layers
    measure(
        f"GCNII, {layers} layers", lambda: GCNII(602, 64, 41, num_layers=layers, rngs=nnx.Rngs(0)), arguments.rounds
    )
    measure("GCN, 2 layers", lambda: GCN(602, 128, 41, rngs=nnx.Rngs(0)), arguments.rounds)


if __name__ == "__main__":
    main()
