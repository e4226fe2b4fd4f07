"""Models from outside in pieces: how far each is from the model in one piece under `jax.grad`, or why it is refused.

    python benchmarks/outside_models.py                     # tables for docs/log; some minutes
    python benchmarks/outside_models.py --json models.json DAGNN "PNA"

Messages are cut after their first sentence, and without the line of the model. Of each model that can be split: the largest
relative distance of loss, gradients and state in float64 and float32 over 1, 3 and 7 intervals, and in float64 after three
epochs of a pipeline of 2 servers with 3 intervals each. Models and measure are those of the tests (tests/support/outside).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
from flax import linen, nnx

from dorylax.program import SplitError
from harness.command_line import parsed, parser_of, write_json

# isort: split
from support import compilation
from support.graphs import messy_graph
from support.outside import OUTSIDE, Outside
from support.outside import measure as m
from support.pipelines import compiled_once

EPOCHS = 3


def kind_of(case: Outside) -> str:
    made = case.make()
    return "NNX" if isinstance(made, nnx.Module) else "Linen" if isinstance(made, linen.Module) else "function"


def in_intervals(case: Outside, dtype: str, cuts: Iterable[int]) -> float:
    with jax.enable_x64(dtype == "float64"):
        data = m.data_of(case, m.small_graph(), dtype)
        parts = m.parts_of(case, data, dtype)
        program, wanted = m.program_of(case, parts, data), m.in_one_piece(case, parts, data)
        return max(
            m.distance(m.in_pieces(program, parts, data, bounds), wanted) for bounds in map(m.CUTS.__getitem__, cuts)
        )


def in_pipe(case: Outside) -> float:
    with jax.enable_x64(True):
        data = m.data_of(case, messy_graph(60, 240), "float64")
        parts = m.parts_of(case, data, "float64")
        return m.distance(
            m.trained_by_pipe(case, parts, data, EPOCHS), m.trained_in_one_piece(case, parts, data, EPOCHS)
        )


def measured(case: Outside, cuts: Iterable[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind_of(case), "paper": case.paper}
    try:
        found |= {dtype: in_intervals(case, dtype, cuts) for dtype in ("float32", "float64")}
    except SplitError as error:
        return {**found, "refused": str(error)}
    jax.config.update("jax_enable_x64", True)  # in the pipeline's threads too
    found["pipe"] = in_pipe(case)
    jax.config.update("jax_enable_x64", False)
    return found


def row(name: str, found: dict[str, Any]) -> str:
    if "refused" in found:
        end: Iterable[str] = [re.sub(r",? at \w+\.py:\d+ \([^)]*\)", "", found["refused"].split(". ")[0])]
    else:
        end = [f"{found[column]:.0e}" for column in ("float64", "float32", "pipe")]
    return "| " + " | ".join([name, found["kind"], found["paper"], *end]) + " |"


def tables(results: dict[str, dict[str, Any]]) -> str:
    exact = ["| model | kind | from | float64 | float32 | pipe |", "|---|---|---|---|---|---|"]
    refused = ["| model | kind | from | message |", "|---|---|---|---|"]
    for name, found in results.items():
        (refused if "refused" in found else exact).append(row(name, found))
    return "\n".join([*exact, "", *refused])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="of models; all by default")
    parser.add_argument(
        "--cuts", type=int, nargs="+", default=list(m.CUTS), help="numbers of intervals (default: 1 3 7)"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, names=["SAGPool", "SIGN"], cuts=[3])
    compilation.quickly()
    results = {}
    with compiled_once(60, 64):
        for name in arguments.names or OUTSIDE:
            results[name] = measured(OUTSIDE[name], arguments.cuts)
            print(row(name, results[name]), file=sys.stderr, flush=True)
    print(tables(results))
    write_json(arguments.json, results)


if __name__ == "__main__":
    main()
