"""What is kept of a unit's edges comes back as it was."""

from __future__ import annotations

import numpy as np

from dorylax.ops.row_loops.rows import RowRange
from dorylax.streaming.labelled_edges import piece_of, unpacked


def test_what_slices_give_is_one_unit_again() -> None:
    first = RowRange(np.array([0, 2, 2]), np.array([5, 7], np.int32))
    second = RowRange(np.array([0, 0, 3]), np.array([1, 2, 3], np.int32))
    piece = piece_of([first, second])
    assert piece.dtype == np.int32
    found = unpacked(piece, 4, 30)
    assert found.first == 30
    assert found.offsets.tolist() == [0, 2, 2, 2, 5]
    assert found.neighbours.tolist() == [5, 7, 1, 2, 3]


def test_a_unit_without_edges() -> None:
    found = unpacked(piece_of([RowRange(np.zeros(4, np.int64), np.zeros(0, np.int32))]), 3, 0)
    assert (found.offsets.tolist(), len(found.neighbours)) == ([0, 0, 0, 0], 0)
