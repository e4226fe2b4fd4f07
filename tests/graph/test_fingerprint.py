"""The hash of a graph's edges against sorting them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dorylax.graph import Graph, fingerprint
from dorylax.graph.fingerprint import edge_fingerprint

EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


def _of(edges: list[tuple[int, int]]) -> tuple[int, int]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    rows = Graph.from_coo(pairs[:, 0], pairs[:, 1], 6).incoming
    return edge_fingerprint(rows.offsets, rows.neighbours)


@given(EDGES)
def test_reversed_edges_have_the_second_number(edges):
    forward, reverse = _of(edges)
    assert _of([(v, u) for u, v in edges]) == (reverse, forward)
    symmetric = sorted(edges) == sorted((v, u) for u, v in edges)
    assert (forward == reverse) == symmetric


@given(EDGES, EDGES)
def test_equal_multisets_and_only_these_have_equal_numbers(edges, others):
    assert (_of(edges) == _of(others)) == (sorted(edges) == sorted(others))


def test_spans_do_not_count(monkeypatch):
    edges = [(u, (3 * u + k) % 6) for u in range(6) for k in range(4)]
    whole = _of(edges)
    monkeypatch.setattr(fingerprint, "_SPAN", 5)
    assert _of(edges) == whole
