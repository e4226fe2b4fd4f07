"""Degrees and GCN normalisation against the dense formula and PyTorch Geometric."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, GraphError, gcn_normalisation, in_degrees, out_degrees

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 7).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=25))
)


def _graph(case) -> Graph:
    v, pairs = case
    return Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)


def _rows(graph: Graph) -> np.ndarray:
    return np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Target and source of each edge, in order of edge ids."""
    slots = slice(None) if graph.edge_order is None else np.argsort(graph.edge_order)
    return _rows(graph)[slots], graph.incoming.neighbours[slots]


@FEW
@given(PAIRS, st.booleans())
def test_degrees_count_edges(case, both_ways):
    graph = _graph(case)
    graph = graph.symmetrise() if both_ways else graph
    v = graph.num_vertices
    np.testing.assert_array_equal(in_degrees(graph), np.bincount(_rows(graph), minlength=v))
    np.testing.assert_array_equal(out_degrees(graph), np.bincount(graph.incoming.neighbours, minlength=v))
    np.testing.assert_array_equal(out_degrees(graph), np.diff(graph.outgoing.offsets))


@FEW
@given(PAIRS, st.booleans(), st.integers(0, 99))
def test_gcn_normalisation_is_the_matrix_formula(case, weighted, seed):
    graph = _graph(case)
    (rows, sources), v = _ends(graph), graph.num_vertices
    weight = np.random.default_rng(seed).random(graph.num_edges) if weighted else None
    matrix, loops = np.zeros((v, v)), np.zeros(v, bool)
    np.add.at(matrix, (rows, sources), 1 if weight is None else weight)
    loops[rows[rows == sources]] = True
    matrix += np.diag(~loops)
    scale = matrix.sum(1) ** -0.5
    expected = scale[:, None] * matrix * scale[None, :]
    got = gcn_normalisation(graph, weight)
    actual = np.diag(got.loop_weight.astype(np.float64))
    np.add.at(actual, (rows, sources), got.edge_weight)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    np.testing.assert_allclose(got.scale, scale, rtol=1e-6)
    assert {got.scale.dtype, got.edge_weight.dtype, got.loop_weight.dtype} == {np.dtype(np.float32)}


def test_a_vertex_whose_weights_are_all_zero_has_scale_zero():
    graph = Graph.from_coo([0, 1], [0, 1])
    got = gcn_normalisation(graph, np.array([0.0, 4.0]))
    assert got.scale.tolist() == [0.0, 0.5]
    assert got.edge_weight.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0], r"edge_weight has length 1: expected 2, one per edge"),
        ([1.0, np.nan], r"edge_weight\[1\] = nan is not finite"),
        ([1.0, -2.0], r"edge_weight\[1\] = -2\.0 is negative"),
    ],
)
def test_bad_weights(weight, message):
    with pytest.raises(GraphError, match=message):
        gcn_normalisation(Graph.from_coo([0, 1], [1, 0]), np.array(weight))
