"""Some rows, or some entries, of a range."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.ops import native
from dorylax.ops.row_loops.rows import RowRange, kept, packed


@pytest.fixture(params=["native", "numpy"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RowRange:
    if request.param == "numpy":
        monkeypatch.setattr(native, "status", lambda: native.Status(available=False))
    elif not native.status().available:
        pytest.skip(f"{native.status().reason}")
    lengths = np.array([3, 0, 5, 1, 0, 0, 2, 70])
    neighbours = np.arange(100, dtype=np.int32)[::-1].copy()
    return RowRange(7 + np.append(0, np.cumsum(lengths)), neighbours, None, 11)


@pytest.mark.parametrize("chosen", [[0], [2, 3, 6], [1, 4], [0, 1, 2, 3, 4, 5, 6, 7], [7], []])
def test_packed_rows_have_their_neighbours_one_row_after_the_other(rows: RowRange, chosen: list[int]) -> None:
    found = packed(rows, np.array(chosen, np.int64))
    assert found.offsets[0] == 0
    assert len(found.offsets) == len(chosen) + 1
    assert found.neighbours.dtype == np.int32
    for place, row in enumerate(chosen):
        mine = found.neighbours[found.offsets[place] : found.offsets[place + 1]]
        np.testing.assert_array_equal(mine, rows.neighbours[rows.offsets[row] : rows.offsets[row + 1]])
    assert found.offsets[-1] == len(found.neighbours)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_rows_keep_the_entries_of_some_neighbours(rows: RowRange, share: float) -> None:
    stays = np.random.default_rng(0).random(100) < share
    found = kept(rows, np.packbits(stays, bitorder="little"))
    assert (found.offsets[0], found.neighbours.dtype, found.first_row) == (0, np.int32, rows.first_row)
    for row in range(len(rows.offsets) - 1):
        mine = rows.neighbours[rows.offsets[row] : rows.offsets[row + 1]]
        np.testing.assert_array_equal(found.neighbours[found.offsets[row] : found.offsets[row + 1]], mine[stays[mine]])
    assert found.offsets[-1] == len(found.neighbours)
