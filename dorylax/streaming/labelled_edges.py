"""File format of a unit's in-edges from labelled vertices: lengths of rows, then neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dorylax.ops.row_loops.rows import RowRange
from dorylax.streaming.graph_steps import UnitRows


def piece_of(parts: Sequence[RowRange]) -> np.ndarray:
    """Encode the edges of a unit, int32 `[R + entries]`.

    Args:
        parts: Rows of the unit in order, as `kept` returns them.
    """
    lengths = [np.diff(part.offsets).astype(np.int32) for part in parts]
    return np.concatenate([np.zeros(0, np.int32), *lengths, *(part.neighbours for part in parts)])


def unpacked(piece: np.ndarray, count: int, first: int) -> UnitRows:
    """Decode the edges of a unit.

    Args:
        piece: Result of `piece_of`.
        count: R.
        first: Number of the first row.
    """
    return UnitRows(np.append(0, np.cumsum(piece[:count], dtype=np.int64)), piece[count:], first)
