"""The reference executor: no cut, no padding and no order of rows changes what comes out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph
from support.oracle import assert_same, distances, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.graph.reorder import reorder
from dorylax.program.model.base import ModelParts
from dorylax.program.model.kinds import take_apart
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.arguments import RunData, StepResult, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec

V, E, F = 12, 20, 3
GRAPH = messy_graph(V, E)
RNG = np.random.default_rng(1)
X = RNG.normal(size=(V, F)).astype(np.float32)
X[4] = 0
EDGES = RNG.normal(size=(E, 2)).astype(np.float32)
LABELS = RNG.integers(0, 2, V).astype(np.int32)
MASK = np.arange(V) % 3 > 0
DATA = RunData(GRAPH, (X, EDGES), np.where(MASK, LABELS, -1).astype(np.int32), training_weights(MASK))
PARAMS = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in {"a": (F, 2), "b": (2, 2)}.items()}
WHOLE: dict[Any, int] = {"vertex": V, "edge": E}
UNEVEN = (0, 1, 5, 6, 9, V)


def spec_of(data: RunData, dtype: str = "float32") -> DataSpec:
    inputs = (RowSpec("vertex", (F,), dtype, "x"), RowSpec("edge", (2,), dtype, "edges"))
    return DataSpec(inputs, RowSpec("vertex", data.labels.shape[1:], data.labels.dtype, "labels"))


def normalised(params: Any, graph: Any, x: Any, edges: Any, key: Any) -> Any:
    """Both kinds of rows, dropout, and a norm whose derivative of zeros is not a number."""
    h = x @ params["a"] + 1
    h = h * jax.random.bernoulli(key, 0.5, h.shape) + 0.1
    h = h / jnp.sqrt((h * h).sum(axis=-1, keepdims=True))
    noise = jax.random.uniform(jax.random.fold_in(key, 1), edges.shape)
    messages = jnp.tanh(ops.scatter_src(graph, h) @ params["b"]) * edges * noise
    return h + ops.gather_edges(graph, messages) / h.shape[0]


@functools.cache
def parts_of(model: Callable[..., Any] = normalised) -> ModelParts:
    return take_apart(model, GRAPH, X, EDGES, params=PARAMS)


@functools.cache
def program_of(passes: tuple[str, ...] = (), model: Callable[..., Any] = normalised) -> Program:
    return optimise(trace(model, spec_of(DATA), params=PARAMS), passes)


def run(
    data: RunData = DATA,
    bounds: Sequence[int] = (0, V),
    *,
    program: Program | None = None,
    rows: dict[Any, int] | None = WHOLE,
    epoch: int = 2,
) -> StepResult:
    program = program or program_of()
    executor = ReferenceExecutor(program, data, Intervals.of(data.graph, bounds), compile=interpret, rows=rows)
    return executor.step(PARAMS, parts_of().streams, {}, seed=1, epoch=epoch)


def assert_alike(one: StepResult, other: StepResult, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(one.loss, other.loss, rtol=tolerance)
    for name in one.metrics:
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name])
    far = {name: far for name, far in distances(one.gradients, other.gradients).items() if not far <= tolerance}
    assert not far, far


def test_padding_changes_nothing() -> None:
    """Not even counts, nor where a row is divided by its length."""
    result = run(bounds=UNEVEN, rows={"vertex": V + 5, "edge": E + 9})
    assert int(np.asarray(result.metrics["counts"])[:2].sum()) == MASK.sum()
    assert_alike(result, run())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.gradients))


def test_dropout_is_that_of_the_vertex_however_rows_are_ordered() -> None:
    order = np.random.default_rng(2).permutation(V)
    graph = reorder(GRAPH, order)
    moved = RunData(graph, (X[order], EDGES), DATA.labels[order], DATA.weights[order])
    for passes in ((), PASSES):
        assert_alike(run(moved, UNEVEN, program=program_of(passes)), run(program=program_of(passes)))
    ids = dataclasses.replace(moved, graph=Graph(graph.incoming.offsets, graph.incoming.neighbours))
    assert float(run(ids).loss) != float(run().loss)  # it is the ids that make it so


def without_edges() -> RunData:
    none = np.zeros(0, np.int64)
    return dataclasses.replace(DATA, graph=Graph.from_coo(none, none, num_vertices=V), inputs=(X, EDGES[:0]))


@pytest.mark.parametrize("rows", [None, {"vertex": V, "edge": 3}], ids=["none", "padded"])
def test_a_graph_without_edges(rows: dict[Any, int] | None) -> None:
    data = without_edges()
    expected = oracle(parts_of(), data, seed=1, epoch=2)
    assert_same(run(data, UNEVEN, rows=rows), expected, "float32")


def test_bfloat16() -> None:
    data = dataclasses.replace(DATA, inputs=tuple(entry.astype(jnp.bfloat16) for entry in DATA.inputs))
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    program = trace(normalised, spec_of(DATA, "bfloat16"), params=params)
    executor = ReferenceExecutor(program, data, Intervals.of(GRAPH, UNEVEN), compile=interpret, rows=WHOLE)
    result = executor.step(params, parts_of().streams, {}, seed=1, epoch=2)
    loss, _, gradients = oracle(dataclasses.replace(parts_of(), params=params), data, seed=1, epoch=2)
    assert result.loss.dtype == jnp.float32
    assert float(result.loss) == pytest.approx(float(loss), rel=1e-2)
    assert max(distances(result.gradients, gradients).values()) < 0.05  # eight bits, added up in another order


def test_several_labels_for_each_vertex() -> None:
    data = dataclasses.replace(DATA, labels=(np.arange(2 * V).reshape(V, 2) % 3 == 0).astype(np.float32))
    program = trace(normalised, spec_of(data), params=PARAMS)
    result = run(data, UNEVEN, program=program)
    assert_same(result, oracle(parts_of(), data, seed=1, epoch=2), "float32")


def test_a_loss_that_is_not_a_number_where_a_vertex_does_not_count() -> None:
    def careful(output: Any, labels: Any) -> Any:
        return jnp.log(jnp.where(labels < 0, -1.0, 1.0) * (1 + output[:, 0] ** 2))

    program = trace(normalised, spec_of(DATA), params=PARAMS, loss=careful)
    result = run(bounds=UNEVEN, program=program)
    assert np.isfinite(result.loss)


def test_output_of_a_program_without_a_loss() -> None:
    program = optimise(trace(exact, spec_of(DATA), params=PARAMS, loss=None))
    executor = ReferenceExecutor(program, DATA, Intervals.of(GRAPH, UNEVEN), compile=interpret, rows=WHOLE)
    found = executor.output(PARAMS, {}, {})
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact(PARAMS, GRAPH, X, EDGES)), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert set(found) == {"rows", "edges", "parameters", "count"}


def exact(params: Any, graph: Any, x: Any, edges: Any) -> Any:
    rows = ops.gather(graph, jnp.tanh(x @ params["a"]), reduce="max")
    return {"rows": rows, "edges": (edges * 2, edges), "parameters": params["b"] * 2, "count": jnp.ones(3) * x.shape[0]}
