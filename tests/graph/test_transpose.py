"""Counting sorts against NumPy's stable lexsort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph.transpose import compress, transpose, transposed_positions

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 9).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=40))
)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, np.int32).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


@FEW
@given(PAIRS, st.integers(1, 12))
def test_transposed_positions_of_symmetric_rows_span_by_span(case, span):
    v, pairs = case
    sources, targets = _arrays(pairs)
    offsets, neighbours, _ = compress(np.concatenate([sources, targets]), np.concatenate([targets, sources]), v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dorylax.graph.transpose.SPAN", span)
        positions = transposed_positions(offsets, neighbours)
    assert positions.dtype == np.int32
    np.testing.assert_array_equal(positions, np.argsort(neighbours, kind="stable"))


def test_there_are_no_positions_past_the_limit_or_where_not_wanted(monkeypatch):
    rows = np.array([0, 2, 3]), np.array([1, 0, 1], np.int32), 2
    full, plain = transpose(*rows), transpose(*rows, with_positions=False)
    monkeypatch.setattr("dorylax.graph.transpose.MAX_EDGE_IDS", 3)
    assert transpose(*rows)[2].tolist() == full[2].tolist() == [1, 0, 2]
    monkeypatch.setattr("dorylax.graph.transpose.MAX_EDGE_IDS", 2)
    past = transpose(*rows)
    for other in (plain, past):
        assert other[2] is None
        assert (other[0].tolist(), other[1].tolist()) == (full[0].tolist(), full[1].tolist())


def test_transpose_of_rectangular_rows():
    offsets, neighbours, edges = transpose(np.array([0, 2, 3]), np.array([4, 1, 4], np.int32), 5)
    assert offsets.tolist() == [0, 0, 1, 1, 1, 3]
    assert neighbours.tolist() == [0, 0, 1]
    assert edges.tolist() == [1, 0, 2]
