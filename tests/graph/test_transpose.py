"""Counting sorts against NumPy's stable lexsort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph.transpose import compress, transposed_positions

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
