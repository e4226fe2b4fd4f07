"""Reordering changes memory order and nothing else."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, GraphError
from dorylax.graph.reorder import user_order

FEW = settings(max_examples=50, deadline=None)

CASES = st.integers(1, 7).flatmap(
    lambda v: st.tuples(
        st.just(v),
        st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=20),
        st.permutations(range(v)),
        st.permutations(range(v)),
    )
)


def _graph(v: int, pairs) -> Graph:
    return Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)


def _places(graph: Graph) -> list[int]:
    """The place of the edge in each slot."""
    return list(range(graph.num_edges)) if graph.edge_order is None else graph.edge_order.tolist()


def _user_edges(graph: Graph) -> list[tuple[int, int]]:
    """(target, source) of the edge in each slot, in the user's vertex ids."""
    ids = np.arange(graph.num_vertices) if graph.vertex_ids is None else graph.vertex_ids
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    return list(zip(ids[rows].tolist(), ids[graph.incoming.neighbours].tolist(), strict=True))


@FEW
@given(CASES)
def test_rows_move_and_ids_stay(case):
    v, pairs, order, _ = case
    graph = _graph(v, pairs)
    moved = graph.reorder(order)
    ids = np.arange(v) if moved.vertex_ids is None else moved.vertex_ids
    np.testing.assert_array_equal(ids, order)
    assert moved.edge_ids is None
    original = dict(zip(_places(graph), _user_edges(graph), strict=True))
    assert original == dict(zip(_places(moved), _user_edges(moved), strict=True))
    assert sorted(original) == list(range(graph.num_edges))
    for row in np.split(moved.incoming.neighbours, moved.incoming.offsets[1:-1]):
        assert (np.diff(row) >= 0).all()
    fresh = Graph.from_csr(moved.incoming.offsets, moved.incoming.neighbours)
    assert (moved.symmetric, moved.self_loops) == (fresh.symmetric, fresh.self_loops)


@FEW
@given(CASES)
def test_undoing_gives_the_graph_back(case):
    v, pairs, first, second = case
    graph = _graph(v, pairs)
    moved = graph.reorder(first).reorder(second)
    back = moved if user_order(moved) is None else moved.reorder(user_order(moved))
    assert back.vertex_ids is None
    np.testing.assert_array_equal(_places(back), _places(graph))
    np.testing.assert_array_equal(back.incoming.offsets, graph.incoming.offsets)
    np.testing.assert_array_equal(back.incoming.neighbours, graph.incoming.neighbours)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1], r"order has length 2: expected 3"),
        ([0, 1, 3], r"order\[2\] = 3 is out of range"),
        ([0, -1, 2], r"order\[1\] = -1 is negative"),
        ([0, 2, 0], r"order\[0\] = 0 is repeated at order\[2\]"),
        ([0.0, 1.0, 2.0], r"order must hold integers"),
    ],
)
def test_bad_orders(order, message):
    with pytest.raises(GraphError, match=message):
        Graph.from_coo([0], [1], 3).reorder(order)


def test_rows_longer_than_a_span_and_many_spans(monkeypatch):
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 40, 500), np.minimum(rng.integers(0, 80, 500), 39)
    graph, order = Graph.from_coo(sources, targets, 40), rng.permutation(40)
    whole = graph.reorder(order)
    monkeypatch.setattr("dorylax.graph.reorder.SPAN", 8)
    for a, b in zip(jax.tree.leaves(graph.reorder(order)), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
