"""Counting sorts of edges: transposing compressed sparse rows, and compressing loose edges into them.

All sorts are stable and take O(V + E) time; the loops are SciPy's (compiled; SciPy comes with JAX). SciPy sees a
matrix, but only its structure is of interest: duplicate entries are different edges and must never be added up.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64, Integer


def transpose(
    offsets: Int64[np.ndarray, " R1"], neighbours: Int32[np.ndarray, " E"], num_columns: int
) -> tuple[Int64[np.ndarray, " C1"], Int32[np.ndarray, " E"], Integer[np.ndarray, " E"]]:
    """Rows by the other end.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`, each in 0 … num_columns-1.
        num_columns: C, the number of rows of the result.

    Returns:
        `(offsets, neighbours, edges)` of the transposed structure: int64 `[C+1]`, int32 `[E]` (the row each entry came
        from, ascending inside a row) and the position each entry came from, int32 `[E]` (int64 past 2³¹ edges).
    """
    from scipy.sparse import csr_array

    shape = (len(offsets) - 1, num_columns)
    by_column = csr_array((_positions(len(neighbours)), neighbours, offsets), shape=shape).tocsc()
    return _offsets(by_column.indptr), by_column.indices.astype(np.int32, copy=False), by_column.data


def compress(
    sources: Int32[np.ndarray, " E"],
    targets: Int32[np.ndarray, " E"],
    num_vertices: int,
    *,
    with_positions: bool = True,
) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " E"], Integer[np.ndarray, " E"]]:
    """Rows by target, sources ascending inside a row; equal edges keep their order.

    Args:
        sources: int32 `[E]`, each in 0 … V-1.
        targets: int32 `[E]`, each in 0 … V-1.
        num_vertices: V.
        with_positions: whether the third result is wanted; without it the sort moves 5 bytes an edge instead of 8.

    Returns:
        `(offsets, sources, positions)`: int64 `[V+1]`, int32 `[E]`, and where each entry stood in the arguments, int32
        `[E]` (int64 past 2³¹ edges; zeros, int8, when not wanted).
    """
    from scipy.sparse import coo_array

    carried = _positions(len(sources)) if with_positions else np.zeros(len(sources), np.int8)
    edges = coo_array((carried, (sources, targets)), shape=(num_vertices, num_vertices))
    edges.has_canonical_format = True  # keeps tocsr() from adding up duplicates
    by_target = edges.tocsr().tocsc()  # by source first: the second sort, being stable, leaves sources ascending
    return _offsets(by_target.indptr), by_target.indices.astype(np.int32, copy=False), by_target.data


def _offsets(indptr: np.ndarray) -> Int64[np.ndarray, " R1"]:
    return indptr.astype(np.int64, copy=False)


def _positions(num_edges: int) -> Integer[np.ndarray, " E"]:
    return np.arange(num_edges, dtype=np.int32 if num_edges <= np.iinfo(np.int32).max else np.int64)
