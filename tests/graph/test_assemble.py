"""What is found out about a graph from its rows, against the dense adjacency matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph.graph import Graph

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 5).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=12))
)


@FEW
@given(PAIRS, st.booleans())
def test_symmetry_and_self_loops_are_those_of_the_matrix(case, both_ways):
    v, pairs = case
    if both_ways:
        pairs = pairs + [(b, a) for a, b in pairs]
    matrix = np.zeros((v, v), int)
    for source, target in pairs:
        matrix[target, source] += 1
    graph = Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)
    assert graph.symmetric == (matrix == matrix.T).all()
    loops = matrix.diagonal() > 0
    assert graph.self_loops == ("all" if loops.all() else "some" if loops.any() else "none")


@pytest.mark.parametrize("v", [0, 3])
def test_no_edges(v):
    graph = Graph.from_coo([], [], v)
    assert (graph.num_vertices, graph.num_edges, graph.symmetric, graph.self_loops) == (v, 0, True, "none")
    assert graph.outgoing.offsets.tolist() == [0] * (v + 1)
