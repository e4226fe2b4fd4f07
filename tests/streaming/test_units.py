"""Units cut the rows, whatever the graph, and do not know how much memory there is."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.streaming.units import Units, cut


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
