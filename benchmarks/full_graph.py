"""Full-graph training on one machine compared with its peers: epoch time, peak memory and loss curve, all in one run.

    python benchmarks/full_graph.py --shape reddit-small --json full-graph.json     # 15 minutes on two cores, 12 GiB
    python benchmarks/full_graph.py --shape attention --model gat

Two layers, full batch, Adam, no dropout (no two libraries drop the same elements), the same initial parameters. The graph
is generated (`communities`) with the shape's numbers. Each side runs in a process of its own, one after the other, which
reads the same files; a warm-up epoch and then the timed ones, of which the table has the median. Sides:

- dorylax: a `Trainer`, as users run it. Its one-time costs are named: `order` (vertices put in community order), `hoist`
  (Â·X, the same in every epoch), `compile`.
- dorylax-given, dorylax-plain: the same without the order, and without the optimised program, to tell what each is worth
  and after how many epochs it has paid for itself.
- dorylax-bfloat16: gathered rows stored in 16 bits, summed in 32.
- pyg: PyTorch Geometric as its users write it (transform before gather, CSR, cached normalisation).
- torch: torch's CSR product with a hand-written backward, transform before gather (GCN only).
- torch-algebra: the same with dorylax's algebra done by hand: Â·X computed once (GCN only).

Peak memory is VmHWM of the process, mapped pages included.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.child import ChildDiedError, in_child
from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, peak_bytes
from sides.problem import Problem, parameters, read, write


class Shape(NamedTuple):
    """Numbers of a graph and its data."""

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int


SHAPES = {
    "tiny": Shape(2_000, 60_000, 32, 7),
    "attention": Shape(200_000, 20_000_000, 128, 41),
    "attention-half": Shape(100_000, 10_000_000, 128, 41),
    "amazon-small": Shape(1_150_000, 39_240_000, 300, 25),
    "reddit-small": Shape(232_965, 114_800_000, 602, 41),
}
HIDDEN = {"gcn": 128, "sage": 128, "gin": 128, "gat": 64}
DORYLAX: dict[str, dict[str, Any]] = {
    "dorylax": {},
    "dorylax-given": {"order": "given"},
    "dorylax-plain": {"optimize": False},
    "dorylax-bfloat16": {"gathered": "bfloat16"},
}
PEERS = {"pyg": ("torch", "torch_geometric"), "torch": ("torch",), "torch-algebra": ("torch",)}
"""Sides that are not dorylax, and the libraries that they need."""

TOLERANCE = {"dorylax-bfloat16": 1e-2}


def run_side(side: str, folder: Path, epochs: int, **options: Any) -> dict[str, Any]:
    """One side, in this process."""
    problem = read(folder)
    if side in DORYLAX:
        from sides import dorylax_side

        found = dorylax_side.train(problem, epochs, **DORYLAX[side] | options)
    else:
        from sides import torch_side

        found = torch_side.train(problem, epochs, side=side, **options)
    return found | {"peak_bytes": peak_bytes(), "epoch_seconds": statistics.median(found["seconds"][1:])}


def generate(folder: Path, shape: Shape, model: str) -> None:
    """Writes the problem."""
    from dorylax.graph import datasets

    data = datasets.load("communities", **shape._asdict())
    widths = (shape.num_features, HIDDEN[model], shape.num_classes)
    layers = parameters(model, widths, degree=shape.num_edges / shape.num_vertices)
    rows, masks = data.graph.incoming, np.stack([data.train_mask, data.val_mask, data.test_mask])
    arrays = (rows.offsets, rows.neighbours, data.features, data.labels, masks)
    write(folder, Problem(*arrays, shape.num_classes, model, layers))


def measure(side: str, folder: Path, epochs: int, function: Any = run_side) -> dict[str, Any] | None:
    """One side, in a process of its own; None where it is not installed or does not survive."""
    missing = [name for name in PEERS.get(side, ()) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out: {side} needs {missing[0]}, which is not installed", flush=True)
        return None
    # An order that an earlier run has kept would hide its cost.
    environment = {"DORYLAX_CACHE": str(folder / f"{side}-cache")}
    try:
        found: dict[str, Any] = in_child(function, side, folder, epochs, environment=environment)
    except ChildDiedError as error:
        print(f"left out: {side} {error}", flush=True)
        return None
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """The sides as lines."""
    ours = found["dorylax"]
    lines = [
        f"{'side':<17} {'epoch':>9} {'dorylax is':>11} {'peak':>9} {'of dorylax':>11}  {'loss differs':>12}  set-up"
    ]
    for side, one in found.items():
        differs = difference(one["losses"], ours["losses"])
        setup = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in one["setup"].items() if seconds >= 0.05)
        lines.append(
            f"{side:<17} {one['epoch_seconds']:>7.2f} s {one['epoch_seconds'] / ours['epoch_seconds']:>9.1f} × "
            f"{one['peak_bytes'] / GIB:>5.2f} GiB {one['peak_bytes'] / ours['peak_bytes']:>9.1f} ×  "
            f"{differs:>12.1e}  {setup}"
        )
    return "\n".join(lines)


def difference(losses: list[float], others: list[float]) -> float:
    """The largest difference of two curves, relative where the loss is above 1."""
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(losses, others, strict=True))


def paid_back(found: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """Epochs after which order and hoisting have saved as much as they cost; None where they save nothing."""
    ours, epochs = found["dorylax"], {}
    for name, without in (("order", "dorylax-given"), ("hoist", "dorylax-plain")):
        if without in found:
            saved = found[without]["epoch_seconds"] - ours["epoch_seconds"]
            epochs[name] = ours["setup"][name] / saved if saved > 0 else None
    return epochs


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shape", choices=list(SHAPES), default="reddit-small")
    parser.add_argument("--model", choices=list(HIDDEN), default="gcn")
    sides = [*DORYLAX, *PEERS]
    parser.add_argument("--sides", nargs="*", choices=sides, default=sides, metavar="SIDE", help=f"of {sides} (all)")
    parser.add_argument("--epochs", type=int, default=3, help="timed ones, after a warm-up")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, shape="tiny", sides=["pyg", "torch-algebra"], epochs=1)
    shape, model = SHAPES[arguments.shape], arguments.model
    print(f"{arguments.shape}: {shape}; {model} of width {HIDDEN[model]}", flush=True)
    found = {}
    with tempfile.TemporaryDirectory(prefix="dorylax-benchmark-") as name:
        folder = Path(name)
        in_child(generate, folder, shape, model)
        for side in dict.fromkeys(["dorylax", *arguments.sides]):
            if side.startswith("torch") and model != "gcn":
                continue
            if (one := measure(side, folder, arguments.epochs)) is not None:
                found[side] = one
                print(f"{side}: {one['epoch_seconds']:.2f} s an epoch", flush=True)
    if "dorylax" not in found:
        raise SystemExit("dorylax itself did not survive: there is nothing to compare with")
    print(table(found))
    epochs = paid_back(found)
    for name, number in epochs.items():
        print(f"{name} is paid back after {'no number of' if number is None else f'{number:.0f}'} epochs")
    machine = {"cpus": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    summary = {"schema": 2, "shape": arguments.shape, **shape._asdict(), "model": model, **machine}
    write_json(arguments.json, summary | {"paid_back_after_epochs": epochs, "sides": found})
    for side, one in found.items():
        worst = difference(one["losses"], found["dorylax"]["losses"])
        if not worst <= TOLERANCE.get(side, 1e-3):
            raise SystemExit(f"the loss curve of {side} differs from dorylax' by {worst:.1e}")


if __name__ == "__main__":
    main()
