"""Every model, cut and pass against the un-partitioned model under `jax.value_and_grad`."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import pytest
from support import zoo
from support.covering import pairwise
from support.oracle import assert_same, exact_gradients, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax.program import PASSES, optimise, trace
from dorylax.program.program import Program

# 1 to 7 uneven intervals of 20 vertices, one of them without edges, some of one vertex.
CUTS = {
    1: (0, 20),
    2: (0, 3, 20),
    3: (0, 1, 12, 20),
    4: (0, 5, 6, 17, 20),
    5: (0, 2, 3, 4, 13, 20),
    6: (0, 4, 8, 9, 15, 19, 20),
    7: (0, 1, 2, 7, 8, 11, 19, 20),
}
WHEN = {"seed": 3, "epoch": 4}
FACTORS: dict[str, Any] = {
    "model": list(zoo.ALL),
    "dtype": ["float64", "float32"],
    **{name: [True, False] for name in PASSES},
}


def few() -> list[dict[str, Any]]:
    """Cases with each pair of a model, a precision and a pass; the cuts take turns, as a pair with each costs most."""
    return [case | {"intervals": 1 + k % len(CUTS)} for k, case in enumerate(pairwise(FACTORS))]


@functools.lru_cache(maxsize=128)
def traced(model: str, dtype: str) -> tuple[Any, Any, Program, Any]:
    case = zoo.ALL[model]
    parts, data = zoo.parts_of(case, dtype), zoo.data_of(case, dtype)
    program = trace(parts, zoo.spec_of(case, dtype))
    return parts, data, program, oracle(parts, data, **WHEN)


def check(case: dict[str, Any]) -> None:
    with jax.enable_x64(case["dtype"] == "float64"):
        parts, data, program, expected = traced(case["model"], case["dtype"])
        program = optimise(program, [name for name in PASSES if case[name]])
        intervals = Intervals.of(data.graph, CUTS[case["intervals"]])
        # Operation by operation, always on as many rows: then nearly nothing is compiled that was not before.
        rows = {"vertex": zoo.V, "edge": int(data.graph.num_edges)}
        executor = ReferenceExecutor(program, data, intervals, compile=interpret, rows=rows)
        result = executor.step(parts.params, parts.streams, parts.state, **WHEN)
        exact = functools.partial(exact_gradients, parts, data, **WHEN) if case["dtype"] == "float32" else None
        assert_same(result, expected, case["dtype"], exact=exact)


def label(case: dict[str, Any]) -> str:
    return f"{case['model']}-{case['intervals']}-{case['dtype']}-{'+'.join(name for name in PASSES if case[name])}"


@pytest.mark.parametrize("case", few(), ids=label)
def test_pairwise(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", zoo.ALL)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_passes_without_others(model: str, dtype: str) -> None:
    # All 256 sets of passes with all cuts take hours: here at most two passes are left out, or all but one.
    turn = list(zoo.ALL).index(model)
    for size in (0, 1, len(PASSES) - 2, len(PASSES) - 1, len(PASSES)):
        for chosen in itertools.combinations(PASSES, size):
            turn += 1
            cut = 1 + turn % len(CUTS)
            check({"model": model, "dtype": dtype, "intervals": cut, **{name: name in chosen for name in PASSES}})
