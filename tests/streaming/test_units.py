"""Units and slices cut the rows, whatever the graph, and do not know how much memory or how many threads there are."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.streaming.units import SLICE_ENTRIES, Slices, Units, cut, slices_for


def units(degrees: list[int], rows: int, entries: int) -> Units:
    return cut(np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), rows, entries)


def test_units_have_so_many_rows_and_entries_at_most() -> None:
    found = units([1, 1, 1, 1, 1, 5, 1, 1], 3, 4)
    assert list(found.vertices) == [0, 3, 5, 6, 8]
    assert list(found.edges) == [0, 3, 5, 10, 12]
    assert found.bounds("vertex", 2) == (5, 6), "a row of more entries has a unit of its own"
    assert found.bounds("edge", 2) == (5, 10)
    assert (found.largest("vertex"), found.largest("edge"), len(found)) == (3, 5, 4)


def test_empty_rows() -> None:
    assert list(units([0, 0, 0], 2, 1).vertices) == [0, 2, 3]


@pytest.mark.parametrize(("rows", "size"), [(64, 64), (17, 64), (16, 16), (5, 16), (4, 4), (1, 1)])
def test_stages_are_compiled_for_few_sizes(rows: int, size: int) -> None:
    found = Units(np.array([0, 64, 64 + rows]), np.zeros(3, np.int64))
    assert found.padded(1) == size


def test_slices_are_of_one_length() -> None:
    units = Units(np.arange(0, 10 * 75_000 + 1, 75_000), np.arange(0, 10 * 4_000_000 + 1, 4_000_000))
    found = slices_for(units, 200, 0)
    number = -(-75_000 // found.rows)
    assert 75_000 <= number * found.rows < 75_000 + 16 * number, "hardly anything is padded"
    assert found.rows <= SLICE_ENTRIES * 75_000 // 4_000_000 + 16
    by_edge = slices_for(units, 200, 4)
    assert by_edge.rows < found.rows
    assert slices_for(units, 200, 64).rows < by_edge.rows


def test_small_units_are_one_slice() -> None:
    assert slices_for(Units(np.array([0, 3, 6]), np.array([0, 5, 7])), 4, 4) == Slices(3, 5)
