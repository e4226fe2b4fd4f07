"""The contract: what a graph says about itself, as a pytree too, and offsets past 2³¹ and 2³² inside jit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.graph import Adjacency, Graph
from dorylax.graph.compressed import as_int64
from dorylax.graph.validate import GraphError

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


def _past_the_limit(monkeypatch, symmetric: bool) -> Graph:
    monkeypatch.setattr("dorylax.graph.transpose.MAX_EDGE_IDS", 3)
    return Graph.from_coo([0, 1, 1, 2], [1, 0, 2, 1] if symmetric else [1, 0, 2, 2])


@pytest.mark.parametrize("symmetric", [False, True])
def test_past_the_limit_edges_have_no_ids_and_rows_stay_whole(monkeypatch, symmetric):
    whole = Graph.from_coo([0, 1, 1, 2], [1, 0, 2, 1] if symmetric else [1, 0, 2, 2])
    graph = _past_the_limit(monkeypatch, symmetric)
    assert not graph.edge_ids_fit
    leaves, tree = jax.tree.flatten(graph)
    again = jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in leaves])
    for other in (graph, again):
        assert other.outgoing.edges is None
        np.testing.assert_array_equal(as_int64(other.outgoing.offsets), whole.outgoing.offsets)
        np.testing.assert_array_equal(other.outgoing.neighbours, whole.outgoing.neighbours)
    assert not jax.jit(lambda g: g)(graph).edge_ids_fit


def test_edge_ids_that_jax_would_narrow_are_not_passed_on(monkeypatch):
    monkeypatch.setattr("dorylax.graph.transpose.MAX_EDGE_IDS", 1)
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
