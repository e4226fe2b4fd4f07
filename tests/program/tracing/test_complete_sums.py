"""Sums over all rows in the middle of a model: exact forwards and backwards, in as few meetings as can be."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo
from support.covering import pairwise
from support.oracle import TOLERANCE, assert_same, oracle
from support.reference import Intervals, ReferenceExecutor, interpret
from support.summing_models import SUMMING

from dorylax import ops
from dorylax.program import PASSES, SplitError, optimise, trace
from dorylax.program.jaxpr.graph_operators import is_global_sum
from dorylax.program.model.base import epoch_rng
from dorylax.program.program import Program

CUTS = {1: (0, 20), 3: (0, 1, 12, 20), 7: (0, 1, 2, 7, 8, 11, 19, 20)}
FACTORS: dict[str, Any] = {
    "model": list(SUMMING),
    "intervals": list(CUTS),
    "passes": ["none", "all", "not fused"],
    "dtype": ["float64", "float32"],
}
CHOSEN = {"none": (), "all": PASSES, "not fused": tuple(name for name in PASSES if name != "fuse")}


@functools.lru_cache(maxsize=64)
def traced(model: str, dtype: str) -> tuple[Any, Any, Program, Any, Any]:
    case = SUMMING[model]
    parts, data = zoo.parts_of(case, dtype), zoo.data_of(case, dtype)
    streams = epoch_rng(parts.streams, 3, 4)
    _, state = parts.structure.apply_train(parts.params, streams, parts.state, data.graph, *data.inputs)
    return parts, data, trace(parts, zoo.spec_of(case, dtype)), oracle(parts, data, seed=3, epoch=4), state


def named(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", pairwise(FACTORS), ids=named)
def test_as_the_model_in_one_piece(case: dict[str, Any]) -> None:
    """Loss, counts, gradients and new state."""
    dtype = case["dtype"]
    with jax.enable_x64(dtype == "float64"):
        parts, data, program, expected, state = traced(case["model"], dtype)
        program = optimise(program, CHOSEN[case["passes"]])
        rows = {"vertex": zoo.V, "edge": int(data.graph.num_edges)}
        intervals = Intervals.of(data.graph, CUTS[case["intervals"]])
        executor = ReferenceExecutor(program, data, intervals, compile=interpret, rows=rows)
        result = executor.step(parts.params, parts.streams, parts.state, seed=3, epoch=4)
        assert_same(result, expected, dtype)
        for found, wanted in zip(jax.tree.leaves(result.state), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[dtype], atol=1e-12)


@pytest.mark.parametrize("model", SUMMING)
def test_as_one_function_for_one_machine(model: str) -> None:
    with jax.enable_x64(True):
        parts, data, program, expected, _ = traced(model, "float64")
        function = optimise(program).as_function(zoo.V, int(data.graph.num_edges))
        kept = function.prepare(data)
        step = function.step(kept, data, parts.params, parts.streams, parts.state, seed=3, epoch=4)
        assert_same(step, expected, "float64")


@pytest.mark.parametrize("model", SUMMING)
def test_outputs_of_an_evaluation(model: str) -> None:
    """Padded intervals too: padding is in no sum."""
    with jax.enable_x64(True):
        parts, data, *_ = traced(model, "float64")
        program = optimise(trace(parts, zoo.spec_of(SUMMING[model], "float64"), loss=None))
        executor = ReferenceExecutor(program, data, Intervals.of(data.graph, CUTS[3]), compile=interpret)
        found = executor.output(parts.params, parts.streams, parts.state)
        structure = parts.structure
        wanted = structure.apply_evaluate(parts.params, parts.streams, parts.state, data.graph, *data.inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def meetings(program: Program, when: str = "epoch") -> list[int]:
    """How many sums each meeting of all intervals completes."""
    return [len(task.equations) for task in program.tasks if task.kind == "sum" and task.when == when]


def test_intervals_meet_once_forwards_and_once_backwards_for_a_batch_norm() -> None:
    """Its mean and mean square together, then the two sums of its gradient."""
    program = optimise(traced("BatchNorm", "float32")[2])
    assert meetings(program) == [2, 2]


def test_what_depends_on_the_graph_alone_is_summed_once() -> None:
    program = optimise(traced("PNA", "float32")[2])
    assert meetings(program) == []
    assert meetings(program, "once") == [1]


def spec(*inputs: str) -> Any:
    return zoo.spec_of(zoo.Case(lambda dtype: None, inputs or ("x",)), "float32")


W = {"w": np.ones((zoo.F, zoo.C), np.float32)}


def test_a_gradient_is_never_completed() -> None:
    """It is added up over intervals: a whole one would count once for each of them."""

    def model(params: Any, graph: Any, x: Any) -> Any:
        return (x - x.mean(axis=0) * params["share"]) @ params["w"] + ops.gather(graph, x) @ params["w"]

    params = {**W, "share": np.ones(zoo.F, np.float32)}
    program = optimise(trace(model, spec(), params=params))
    outputs = zip(program.traced.outputs, program.traced.step.jaxpr.outvars, strict=True)
    gradients = {atom for output, atom in outputs if output.role == "gradient"}
    whole = {e.outvars[0] for e in program.traced.step.jaxpr.eqns if is_global_sum(e)}
    assert whole
    assert not whole & gradients


def test_a_sum_is_completed_where_it_is_taken_if_that_ships_no_more() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        mean = x.sum(axis=0) / 20
        return (x - mean) @ params["w"] + jnp.tanh(2 * mean) @ params["w"]

    program = optimise(trace(model, spec(), params=W, loss=None))
    (completed,) = [e for e in program.traced.step.jaxpr.eqns if is_global_sum(e)]
    maker = next(e for e in program.traced.step.jaxpr.eqns if completed.invars[0] in e.outvars)
    assert maker.primitive.name == "reduce_sum"


def test_of_a_matrix_of_products_only_what_is_read_is_shipped() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return x @ params["w"] / jnp.sqrt(1 + jnp.trace(x.T @ x))

    program = optimise(trace(model, spec(), params=W, loss=None))
    shapes = [e.invars[0].aval.shape for e in program.traced.step.jaxpr.eqns if is_global_sum(e)]
    assert shapes == [()]


@pytest.mark.parametrize(
    "mix",
    [
        pytest.param(lambda x: x - x.max(axis=0), id="maximum"),
        pytest.param(lambda x: jax.nn.softmax(x, axis=0), id="softmax"),
        pytest.param(lambda x: jnp.cumsum(x, axis=0), id="cumulative sum"),
        pytest.param(lambda x: x - jnp.median(x, axis=0), id="median"),
        pytest.param(lambda x: x - x[0], id="first row"),
    ],
)
def test_what_is_no_sum_is_still_refused(mix: Any) -> None:
    with pytest.raises(SplitError, match=r"test_complete_sums\.py"):
        trace(lambda params, graph, x: mix(x) @ params["w"], spec(), params=W)


def test_a_sum_inside_a_scan_over_layers() -> None:
    """The scan is unrolled, as one with a graph operator in it is."""

    def model(params: Any, graph: Any, x: Any) -> Any:
        def step(h: Any, scale: Any) -> Any:
            return jnp.tanh(h - scale * h.sum(axis=0)), None

        return jax.lax.scan(step, x, params["scales"])[0] @ params["w"]

    params = {**W, "scales": np.full(3, 0.05, np.float32)}
    program = optimise(trace(model, spec(), params=params))
    assert meetings(program, "once") == [1]  # of the features
    assert meetings(program) == [1] * 4


def test_a_sum_that_is_taken_and_used_inside_a_loop_is_refused() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        def step(h: Any) -> Any:
            return h - 0.1 * h.sum(axis=0)

        return jax.lax.while_loop(lambda h: (h**2).sum() > 1, step, x) @ params["w"]

    with pytest.raises(SplitError, match="vertex axis"):
        trace(model, spec(), params=W, loss=None)
