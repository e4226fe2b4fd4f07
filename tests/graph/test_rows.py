"""Passes over entries, span by span, against whole-array NumPy."""

from __future__ import annotations

import threading
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import rows

FEW = settings(max_examples=50, deadline=None)

DEGREES = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def _offsets(degrees: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)


@FEW
@given(DEGREES, st.data())
def test_rows_between_is_a_slice_of_all_rows(degrees, data):
    offsets = _offsets(degrees)
    total = int(offsets[-1])
    start = data.draw(st.integers(0, max(0, total - 1)))
    stop = data.draw(st.integers(min(start + 1, total), total))
    everything = np.repeat(np.arange(len(degrees)), degrees)
    np.testing.assert_array_equal(rows.all_rows(offsets), everything)
    np.testing.assert_array_equal(rows.rows_between(offsets, start, stop), everything[start:stop])


def test_rows_between_past_two_to_the_31():
    offsets = np.array([0, 2**31 - 1, 2**31 + 3, 2**33, 2**33, 2**33 + 5])
    assert rows.rows_between(offsets, 2**31 - 2, 2**31 + 5).tolist() == [0, 1, 1, 1, 1, 2, 2]
    assert rows.rows_between(offsets, 2**33 - 1, 2**33 + 2).tolist() == [2, 4, 4]


@FEW
@given(DEGREES, st.data())
def test_loops_counts_and_first_of_equals(degrees, data):
    offsets, v = _offsets(degrees), len(degrees)
    ids = [sorted(data.draw(st.lists(st.integers(0, v - 1), min_size=d, max_size=d))) for d in degrees]
    neighbours = np.array(list(chain(*ids)), np.int32)
    owner = rows.all_rows(offsets)
    with pytest.MonkeyPatch.context() as patch:
        whole = rows.spans
        patch.setattr(rows, "spans", lambda total, size=3: whole(total, 3))  # many spans, cutting through rows
        np.testing.assert_array_equal(
            rows.positions_where(np.equal, offsets, neighbours), np.flatnonzero(owner == neighbours)
        )
        looped = [v in row for v, row in enumerate(ids)]
        np.testing.assert_array_equal(rows.rows_with_loops(offsets, neighbours), looped)
        np.testing.assert_array_equal(rows.count_values(neighbours, v), np.bincount(neighbours, minlength=v))
    keep = rows.first_of_equals(offsets, neighbours)
    kept = [sorted(set(row)) for row in ids]
    assert neighbours[keep].tolist() == list(chain(*kept))
    dropped = np.flatnonzero(~keep)
    np.testing.assert_array_equal(rows.offsets_without(offsets, dropped), _offsets([len(row) for row in kept]))


def test_an_error_is_raised_in_its_place_and_nothing_more_is_begun() -> None:
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        return 1 // (item - 3)

    results = rows.in_order(work, range(1000), 2)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert max(begun) < 10
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
