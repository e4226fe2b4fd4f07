"""Transposing compressed sparse rows: from edges by destination to edges by source."""

from __future__ import annotations

import numpy as np


def transpose(
    offsets: np.ndarray, neighbours: np.ndarray, num_columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by the other end.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`, each in 0 … num_columns-1.
        num_columns: C, the number of rows of the result.

    Returns:
        `(offsets, neighbours, edges)` of the transposed structure: int64 `[C+1]`, int32 `[E]` (the row each entry came
        from, ascending inside a row) and the position each entry came from, int32 `[E]` (int64 past 2³¹ edges).
    """
    counts = np.bincount(neighbours, minlength=num_columns)
    out_offsets = np.zeros(num_columns + 1, np.int64)
    np.cumsum(counts, out=out_offsets[1:])
    edges = np.argsort(neighbours, kind="stable")  # radix sort on int32
    rows = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    wide = len(neighbours) > np.iinfo(np.int32).max
    return out_offsets, rows[edges], edges if wide else edges.astype(np.int32)
