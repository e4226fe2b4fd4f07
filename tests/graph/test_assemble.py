"""Symmetry and self-loops that a graph's rows show, against the dense adjacency matrix, and the hash of its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, assemble

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 5).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=12))
)


@FEW
@given(PAIRS, st.booleans())
@example((3, [(0, 1), (1, 2), (2, 0)]), False)  # as many in-edges as out-edges at each vertex
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


EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


def _hashes(edges: list[tuple[int, int]]) -> tuple[int, int]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    rows = Graph.from_coo(pairs[:, 0], pairs[:, 1], 6).incoming
    return assemble.edge_fingerprint(rows.offsets, rows.neighbours)


@given(EDGES, EDGES)
def test_equal_multisets_and_only_these_have_equal_hashes_in_spans_of_any_length(edges, others):
    assert (_hashes(edges) == _hashes(others)) == (sorted(edges) == sorted(others))
    assert _hashes([(v, u) for u, v in edges]) == _hashes(edges)[::-1]
    whole = _hashes(edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_SPAN", 5)
        assert _hashes(edges) == whole
