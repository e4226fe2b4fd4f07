"""Graphs inside JAX, their sizes, and their degrees and normalisation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import ends

import dorylax
from dorylax import ops
from dorylax.graph import Adjacency, Graph, GraphError, in_degrees, out_degrees
from dorylax.graph.compressed import as_int64
from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.program.model.base import signature
from dorylax.program.tracing.spec import DataSpec

# Row lengths each below 2³¹, totals across 2³¹, 2³² and 2³³; also exactly on the borders.
PAST_INT32 = np.array(
    [0, 2**31 - 1, 2**31, 2**31 + 7, 2**32 - 1, 2**32, 2**32 + 10, 2**32 + 10, 2**32 + 2**31 + 9, 2**33, 2**33 + 1]
)


def test_incoming_rows_list_sources_and_outgoing_rows_targets():
    graph = Graph.from_coo([2, 0, 2, 1], [0, 1, 1, 1], 3)
    assert graph.incoming.offsets.tolist() == [0, 1, 4, 4]
    assert graph.incoming.neighbours.tolist() == [2, 0, 1, 2]
    assert graph.outgoing.offsets.tolist() == [0, 1, 2, 4]
    assert graph.outgoing.neighbours.tolist() == [1, 1, 0, 1]
    assert graph.outgoing.edges.tolist() == [1, 2, 0, 3]
    assert (graph.num_vertices, graph.num_edges, graph.symmetric, graph.self_loops) == (3, 4, False, "some")
    assert repr(graph) == "Graph(3 vertices, 4 edges, directed, self-loops: some)"


def test_symmetric_graph_shares_both_directions():
    graph = Graph.from_coo([0, 1, 1, 2], [1, 0, 2, 1])
    assert graph.symmetric
    assert graph.outgoing.neighbours is graph.incoming.neighbours
    assert graph.outgoing.offsets is graph.incoming.offsets
    # Entry k of row u is the edge u → v; its edge id is where v's incoming row lists u.
    assert graph.outgoing.edges.tolist() == [1, 0, 3, 2]


def test_flattening_and_unflattening_keep_everything():
    graph = Graph.from_coo([0, 1, 1, 2], [1, 0, 2, 2]).reorder([2, 0, 1])
    leaves, tree = jax.tree.flatten(graph)
    again = jax.tree.unflatten(tree, leaves)
    np.testing.assert_array_equal(as_int64(again.incoming.offsets), graph.incoming.offsets)
    np.testing.assert_array_equal(as_int64(again.outgoing.offsets), graph.outgoing.offsets)
    np.testing.assert_array_equal(again.outgoing.edges, graph.outgoing.edges)
    np.testing.assert_array_equal(again.vertex_ids, graph.vertex_ids)
    np.testing.assert_array_equal(again.edge_order, graph.edge_order)
    assert again.edge_ids is None
    assert (again.symmetric, again.self_loops) == (graph.symmetric, graph.self_loops)


def test_a_graph_carries_such_offsets_into_jit_and_back():
    rows = Adjacency(PAST_INT32, np.zeros(0, np.int32), np.zeros(0, np.int32))
    graph = Graph(rows.offsets, rows.neighbours, outgoing=rows)
    degrees, through = jax.jit(lambda g: (ops.in_degrees(g, jnp.int32), g))(graph)
    np.testing.assert_array_equal(degrees, np.diff(PAST_INT32))
    np.testing.assert_array_equal(as_int64(through.incoming.offsets), PAST_INT32)
    np.testing.assert_array_equal(as_int64(through.outgoing.offsets), PAST_INT32)


@pytest.mark.parametrize("symmetric", [False, True])
def test_past_the_limit_edges_have_no_ids_and_rows_stay_whole(monkeypatch, symmetric):
    ends = [0, 1, 1, 2], [1, 0, 2, 1] if symmetric else [1, 0, 2, 2]
    whole = Graph.from_coo(*ends)
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 3)
    graph = Graph.from_coo(*ends)
    assert not graph.edge_ids_fit
    leaves, tree = jax.tree.flatten(graph)
    again = jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in leaves])
    for other in (graph, again):
        assert other.outgoing.edges is None
        np.testing.assert_array_equal(as_int64(other.outgoing.offsets), whole.outgoing.offsets)
        np.testing.assert_array_equal(other.outgoing.neighbours, whole.outgoing.neighbours)
    assert not jax.jit(lambda g: g)(graph).edge_ids_fit


def test_edge_ids_that_jax_would_narrow_are_not_passed_on(monkeypatch):
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 1)
    rows = Adjacency(np.array([0, 2]), np.zeros(2, np.int32), np.array([0, 2**31]))
    graph = Graph(rows.offsets, rows.neighbours, outgoing=rows)
    assert jax.tree.map(lambda leaf: leaf, graph).outgoing.edges is None


@pytest.mark.parametrize("x64", [False, True])
def test_offsets_survive_a_device_with_and_without_x64(x64):
    graph = Graph.from_coo([0, 1, 3], [1, 0, 0], 4)
    with jax.enable_x64(x64):
        on_device = jax.device_put(graph)
        assert on_device.num_vertices == 4
        np.testing.assert_array_equal(as_int64(on_device.incoming.offsets), graph.incoming.offsets)


@pytest.mark.parametrize("symmetric", [False, True])
def test_without_edge_ids_only_these_are_gone(symmetric):
    whole = Graph.from_coo([0, 1, 1, 2], [1, 0, 2, 1] if symmetric else [1, 0, 2, 2]).reorder([2, 0, 1])
    lean = whole.without_edge_ids()
    inside = jax.jit(lambda g: g)(lean)
    for graph in (lean, inside, jax.device_get(inside)):
        assert not graph.edge_ids_fit
        assert graph.outgoing.edges is None
        np.testing.assert_array_equal(as_int64(graph.outgoing.offsets), whole.outgoing.offsets)
        np.testing.assert_array_equal(graph.outgoing.neighbours, whole.outgoing.neighbours)
        np.testing.assert_array_equal(graph.vertex_ids, whole.vertex_ids)
        with pytest.raises(GraphError, match="have no ids"):
            _ = graph.edge_ids
        with pytest.raises(GraphError, match="have no ids"):
            _ = graph.edge_order
        with pytest.raises(GraphError, match="have no ids"):
            ops.gather(graph, jnp.ones((3, 1)), jnp.ones(4))
    np.testing.assert_array_equal(ops.gather(inside, jnp.arange(3.0)), ops.gather(whole, jnp.arange(3.0)))
    assert lean.without_edge_ids() is lean
    assert len(jax.tree.leaves(lean)) == len(jax.tree.leaves(whole)) - 2  # slots of reversed edges, places of slots


def _directed() -> Dataset:
    rng = np.random.default_rng(0)
    data = dorylax.load("communities", size="tiny")
    graph = Graph.from_coo(rng.integers(0, 1000, 5000), rng.integers(0, 1000, 5000), 1000)
    indicators = np.eye(4, dtype=np.float32)[data.labels]
    return dataclasses.replace(data, graph=graph, labels=indicators, multilabel=True)


def _targets() -> Dataset:
    data = dorylax.load("communities", size="tiny")
    edges = {"weight": np.ones(data.graph.num_edges), "flag": np.ones((data.graph.num_edges, 3), bool)}
    pos = {"pos": np.ones((1000, 2, 3)), "id": np.arange(1000)}
    return Dataset("targets", data.graph, data.features, data.features[:, :5], vertex_inputs=pos, edge_inputs=edges)


@pytest.fixture(params=["symmetric", "reordered", "directed, multi-label", "targets, further inputs"])
def data(request: pytest.FixtureRequest) -> Dataset:
    if request.param.startswith("targets"):
        return _targets()
    if request.param.startswith("directed"):
        return _directed()
    found = dorylax.load("communities", size="tiny")
    return found.reorder(np.arange(1000)[::-1]) if request.param == "reordered" else found


def test_a_copy_has_the_bytes_of_the_arrays(data: Dataset) -> None:
    masks, further = (data.train_mask, data.val_mask, data.test_mask), (data.vertex_inputs, data.edge_inputs)
    leaves = jax.tree.leaves((data.graph, data.features, data.labels, masks, further))
    assert sum(DataShape.of(data).copy().values()) == sum(np.asarray(leaf).nbytes for leaf in leaves)


def test_what_is_traced_on_shapes_is_what_would_be_traced_on_the_data(data: Dataset) -> None:
    abstract = abstract_data(DataShape.of(data))
    real, found = (
        (one.graph, one.features, one.labels, one.vertex_inputs, one.edge_inputs) for one in (data, abstract)
    )
    assert signature(found) == signature(real)
    assert (abstract.num_classes, abstract.multilabel) == (data.num_classes, data.multilabel)
    assert DataSpec.of(abstract) == DataSpec.of(data)


def test_past_2_to_the_31_edges_there_are_no_ids() -> None:
    shape = DataShape(10, 2**31, 4, 2)
    assert "order of reversed edges" not in shape.copy()
    assert not abstract_data(shape).graph.edge_ids_fit


FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 7).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=25))
)


def _graph(case) -> Graph:
    v, pairs = case
    return Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)


@FEW
@given(PAIRS, st.booleans())
def test_degrees_count_edges(case, both_ways):
    graph = _graph(case)
    graph = graph.symmetrise() if both_ways else graph
    v = graph.num_vertices
    for degrees, found in zip((out_degrees, in_degrees), ends(graph), strict=True):
        np.testing.assert_array_equal(degrees(graph), np.bincount(found, minlength=v))
    np.testing.assert_array_equal(out_degrees(graph), np.diff(graph.outgoing.offsets))
