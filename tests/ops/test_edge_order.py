"""Every operator with values per edge against a loop over the user's list of edges: after any chain of transformations,
forward and backward, eagerly, jitted and as a traced program, in any memory order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from support.edge_lists import EdgeList, apply, sized_chains
from support.oracle import oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.graph import Graph
from dorylax.ops.scatter import from_slots, to_slots
from dorylax.program import DataSpec, optimise, trace
from dorylax.program.model.kinds import take_apart
from dorylax.program.model.loss import cross_entropy
from dorylax.program.program import Program
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import RowSpec

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
# Many chains of one shape, so that nearly nothing is compiled for an example that was not for the one before.
SIZE = (4, 6)
WITHOUT_EDGES: Any = EdgeList(4, 0, []), []
ONE_VERTEX: Any = EdgeList(1, 2, [(0, 0, 0, 1.0), (1, 0, 0, 11.0)]), []
WIDTH = 2


_REDUCE: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


def _reduced(edges: EdgeList, messages: np.ndarray, reduce: str) -> np.ndarray:
    out = np.zeros((edges.num_vertices, *messages.shape[1:]))
    for v in range(edges.num_vertices):
        mine = [messages[k] for k, edge in enumerate(edges.edges) if edge[2] == v]
        if mine:
            out[v] = _REDUCE[reduce](mine, axis=0)
    return out


def _softmax(edges: EdgeList, scores: np.ndarray) -> np.ndarray:
    out = np.zeros_like(scores)
    for v in range(edges.num_vertices):
        mine = [k for k, edge in enumerate(edges.edges) if edge[2] == v]
        if mine:
            shifted = np.exp(scores[mine] - scores[mine].max(0))
            out[mine] = shifted / shifted.sum(0)
    return out


# Name: (operator of graph, x [V, F] and e [E, F], the same over the user's list of edges).
OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    **{
        f"gather {reduce}": (
            lambda g, x, e, reduce=reduce: ops.gather(g, x, e[:, 0], reduce=reduce),
            lambda edges, x, e, reduce=reduce: _reduced(edges, e[:, :1] * x[edges.ends[0]], reduce),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    **{
        f"gather_edges {reduce}": (
            lambda g, x, e, reduce=reduce: ops.gather_edges(g, e, reduce=reduce),
            lambda edges, x, e, reduce=reduce: _reduced(edges, e, reduce),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    "gather heads": (
        lambda g, x, e: ops.gather(g, x[:, :, None], e)[:, :, 0],
        lambda edges, x, e: _reduced(edges, e * x[edges.ends[0]], "sum"),
    ),
    "scatter_src": (lambda g, x, e: ops.scatter_src(g, x) * e, lambda edges, x, e: x[edges.ends[0]] * e),
    "scatter_dst": (lambda g, x, e: ops.scatter_dst(g, x) * e, lambda edges, x, e: x[edges.ends[1]] * e),
    "edge_softmax": (lambda g, x, e: ops.edge_softmax(g, e), lambda edges, x, e: _softmax(edges, e)),
    "edge_ids": (
        lambda g, x, e: e * ops.edge_ids(g).astype(e.dtype)[:, None],
        lambda edges, x, e: e * np.array([edge[0] for edge in edges.edges], float).reshape(-1, 1),
    ),
    "places": (
        lambda g, x, e: e * jnp.arange(g.num_edges, dtype=e.dtype)[:, None],
        lambda edges, x, e: e * np.arange(len(edges.edges))[:, None],
    ),
}


@pytest.fixture(autouse=True)
def exact(x64: None) -> None:
    """In float64."""


def _case(case: tuple[EdgeList, list[tuple[str, Any]]]) -> tuple[Graph, EdgeList]:
    edges, chain = case
    graph = Graph.from_coo(*edges.ends, edges.num_vertices, edge_data={"w": [w for *_, w in edges.edges]})
    for name, argument in chain:
        graph, edges = apply(graph, name, argument), edges.changed(name, argument)
    return graph, edges


def _values(edges: EdgeList) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(edges.edges))
    return rng.normal(size=(edges.num_vertices, WIDTH)), rng.normal(size=(len(edges.edges), WIDTH))


def _rows(graph: Graph) -> np.ndarray:
    """The user's vertex in each row."""
    return np.arange(graph.num_vertices) if graph.vertex_ids is None else np.asarray(graph.vertex_ids)


def _given(graph: Graph, y: Any, edges: EdgeList, *, of_edges: bool) -> np.ndarray:
    """A result in the user's order of vertices."""
    out = np.asarray(y)
    return out if of_edges else out[np.argsort(_rows(graph))]


def test_the_example_of_the_issue() -> None:
    graph = Graph.from_coo([0, 1, 2], [2, 0, 1])
    for operator in (ops.gather, jax.jit(ops.gather)):
        np.testing.assert_array_equal(operator(graph, np.ones(3), np.array([10.0, 20, 30])), [20, 30, 10])
    np.testing.assert_array_equal(ops.scatter_src(graph, np.arange(3.0)), [0, 1, 2])
    np.testing.assert_array_equal(ops.scatter_dst(graph, np.arange(3.0)), [2, 0, 1])


@pytest.mark.parametrize("name", OPERATORS)
@FEW
@example(case=WITHOUT_EDGES)
@example(case=ONE_VERTEX)
@given(case=sized_chains(SIZE))
def test_forward_and_backward_are_a_loop_over_the_list(name: str, case: Any) -> None:
    graph, edges = _case(case)
    operator, loop = OPERATORS[name]
    x, e = _values(edges)
    of_edges = name.split(maxsplit=1)[0] not in ("gather", "gather_edges")
    moved = x[_rows(graph)]
    expected = loop(edges, x, e)
    y = operator(graph, moved, jnp.asarray(e))
    np.testing.assert_allclose(_given(graph, y, edges, of_edges=of_edges), expected, rtol=1e-12, atol=1e-12)
    weight = np.random.default_rng(1).normal(size=y.shape)

    def total(e: Any) -> Any:
        return (operator(graph, moved, e) * weight).sum()

    if edges.edges:
        check_grads(total, (jnp.asarray(e),), order=1, modes=["fwd", "rev"], rtol=1e-5, atol=1e-6)


@FEW
@example(WITHOUT_EDGES)
@example(ONE_VERTEX)
@given(sized_chains(SIZE))
def test_to_slots_and_back(case: Any) -> None:
    graph, edges = _case(case)
    _, e = _values(edges)
    for convert in (
        lambda g, e: (to_slots(g, e), from_slots(g, e)),
        jax.jit(lambda g, e: (to_slots(g, e), from_slots(g, e))),
    ):
        there, back = convert(graph, e)
        slots = np.arange(len(e)) if graph.edge_order is None else graph.edge_order
        np.testing.assert_array_equal(there, e[slots])
        np.testing.assert_array_equal(np.asarray(back)[slots], e)
    there, backward = jax.vjp(lambda e: to_slots(graph, e), jnp.asarray(e))
    np.testing.assert_array_equal(backward(jnp.asarray(e))[0], from_slots(graph, e))
    batched = jax.vmap(functools.partial(to_slots, graph), in_axes=1, out_axes=1)(jnp.asarray(e))
    np.testing.assert_array_equal(batched, there)


def test_a_graph_whose_places_are_its_slots_converts_nothing() -> None:
    graph = Graph.from_coo([2, 0, 1], [0, 1, 1], 3)
    e = jnp.arange(3.0)
    assert to_slots(graph, e) is e
    assert from_slots(graph, e) is e


SPEC = DataSpec(
    (RowSpec("vertex", (WIDTH,), "float64", "x"), RowSpec("edge", (WIDTH,), "float64", "edges")),
    RowSpec("vertex", (), "int32", "labels"),
)
PARAMS = {"a": np.array([[0.3, -1.0], [0.7, 0.4]])}


def model(params: Any, graph: Graph, x: Any, edges: Any, key: Any) -> Any:
    """Every operator with values per edge, ids, places, and draws for each edge."""
    messages = jnp.tanh(ops.scatter_src(graph, x @ params["a"]) - ops.scatter_dst(graph, x)) * edges
    alpha = ops.edge_softmax(graph, messages)
    kept = jax.random.bernoulli(key, 0.5, alpha.shape)
    number = jnp.arange(graph.num_edges) % 3 + ops.edge_ids(graph) % 2
    y = ops.gather(graph, x[:, :, None], alpha * kept)[:, :, 0]
    return y + ops.gather_edges(graph, messages * number[:, None]) + ops.gather(graph, x, edges[:, 1], reduce="mean")


@functools.cache
def _program(*, loss: bool) -> Program:
    if loss:
        return optimise(trace(model, SPEC, params=PARAMS))
    return trace(lambda p, g, x, e: (ops.scatter_src(g, x @ p["a"]) * e, e.T, x), SPEC, params=PARAMS, loss=None)


@functools.cache
def _function(num_vertices: int, num_edges: int, *, loss: bool) -> Any:
    return _program(loss=loss).as_function(num_vertices, num_edges)


def _data(graph: Graph, edges: EdgeList) -> RunData:
    x, e = _values(edges)
    rows = _rows(graph)
    labels = (np.arange(edges.num_vertices) % WIDTH).astype(np.int32)
    return RunData(graph, (x[rows], e), labels[rows], training_weights(np.ones(len(rows), bool), np.float64))


def _executor(program: Program, data: RunData, count: int) -> ReferenceExecutor:
    """Operation by operation, always on as many rows."""
    rows = {"vertex": data.graph.num_vertices, "edge": data.graph.num_edges}
    return ReferenceExecutor(program, data, Intervals.even(data.graph, count), compile=interpret, rows=rows)


@FEW
@example(case=WITHOUT_EDGES, count=1)
@given(case=sized_chains(SIZE), count=st.sampled_from([1, 3]))
def test_a_program_gives_what_the_model_gives_on_the_users_graph(case: Any, count: int) -> None:
    """Loss, gradients towards parameters and towards values per edge: those of `jax.grad` of the model as it is."""
    graph, edges = _case(case)
    data, parts = _data(graph, edges), take_apart(model, graph, *_data(graph, edges).inputs, params=PARAMS)
    as_given = graph if graph.vertex_ids is None else graph.reorder(np.argsort(graph.vertex_ids))
    expected, _, gradients = oracle(parts, _data(as_given, edges), seed=3, epoch=1)
    program = _program(loss=True)
    runs = [_executor(program, data, count).step(PARAMS, parts.streams, {}, seed=3, epoch=1)]
    function = _function(graph.num_vertices, graph.num_edges, loss=True)
    runs.append(function.step(function.prepare(data), data, PARAMS, parts.streams, {}, seed=3, epoch=1))
    for result in runs:
        np.testing.assert_allclose(result.loss, expected, rtol=1e-10)
        np.testing.assert_allclose(result.gradients["a"], gradients["a"], rtol=1e-9, atol=1e-12)


@FEW
@example(WITHOUT_EDGES)
@given(case=sized_chains(SIZE))
def test_gradients_towards_values_per_edge_are_in_the_users_order(case: Any) -> None:
    graph, edges = _case(case)
    data = _data(graph, edges)

    def weighted(params: Any, graph: Graph, x: Any, e: Any) -> Any:
        return ops.gather(graph, x @ params["a"], e[:, 0]) + ops.gather_edges(graph, jnp.sin(e))

    def loss(e: Any) -> Any:
        rows = cross_entropy(weighted(PARAMS, graph, data.inputs[0], e), jnp.asarray(data.labels))
        return (rows * data.weights).sum()

    program = trace(weighted, SPEC, params=PARAMS)
    executor = _executor(program, data, 2)
    found = executor.step(PARAMS, {}, {}).input_gradients["edges"]
    np.testing.assert_allclose(found, jax.grad(loss)(jnp.asarray(data.inputs[1])), rtol=1e-9, atol=1e-12)


@FEW
@example(WITHOUT_EDGES)
@given(case=sized_chains(SIZE))
def test_what_a_program_gives_per_edge_is_in_the_users_order(case: Any) -> None:
    graph, edges = _case(case)
    data = _data(graph, edges)
    (x, e), rows = _values(edges), _rows(graph)
    expected = (x[edges.ends[0]] @ PARAMS["a"] * e, e.T, x[rows])
    program = _program(loss=False)
    function = _function(graph.num_vertices, graph.num_edges, loss=False)
    executor = _executor(program, data, 2)
    for output in (executor.output(PARAMS, {}, {}), function.output(function.prepare(data), data, PARAMS, {}, {})):
        for actual, wanted in zip(output, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-12)
