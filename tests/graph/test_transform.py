"""Self-loops and symmetry against the dense adjacency matrix, and in any memory order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph

FEW = settings(max_examples=50, deadline=None)

CASES = st.integers(1, 7).flatmap(
    lambda v: st.tuples(
        st.just(v),
        st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=25),
        st.permutations(range(v)),
    )
)
CHANGES = {
    "with_self_loops": lambda m: m + np.diag(m.diagonal() == 0),
    "without_self_loops": lambda m: m - np.diag(m.diagonal()),
    "symmetrise": lambda m: ((m + m.T) > 0).astype(int),
}


def _matrix_of(graph: Graph) -> np.ndarray:
    matrix = np.zeros((graph.num_vertices, graph.num_vertices), int)
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    np.add.at(matrix, (rows, graph.incoming.neighbours), 1)
    return matrix


@pytest.mark.parametrize("name", CHANGES)
@FEW
@given(case=CASES)
def test_against_the_matrix(name, case):
    v, pairs, _ = case
    graph = Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)
    changed = getattr(graph, name)()
    np.testing.assert_array_equal(_matrix_of(changed), CHANGES[name](_matrix_of(graph)))
    fresh = Graph.from_csr(changed.incoming.offsets, changed.incoming.neighbours)
    assert fresh.incoming.neighbours is changed.incoming.neighbours  # its rows were sorted
    assert (changed.symmetric, changed.self_loops) == (fresh.symmetric, fresh.self_loops)
    assert changed.incoming.offsets.dtype == np.int64
    assert changed.incoming.neighbours.dtype == np.int32


def test_nothing_to_change():
    assert Graph.from_coo([0], [1]).without_self_loops().num_edges == 1
    looped = Graph.from_coo([0, 1], [0, 1])
    assert looped.with_self_loops() is looped
    assert Graph.from_coo([], [], 0).with_self_loops().num_vertices == 0
