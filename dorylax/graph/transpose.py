"""Counting sorts of edges: transposing compressed sparse rows, and compressing loose edges into them.

All sorts are stable and take O(V + E) time; the loops are SciPy's (compiled; SciPy comes with JAX). SciPy sees a
matrix, but only its structure is of interest: duplicate entries are different edges and must never be added up.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64, Integer

from dorylax.aligned import empty
from dorylax.graph.rows import SPAN, spans

# Edge ids are int32 inside JAX, which without x64 would silently narrow anything wider. Graphs may have more edges than
# this; their edges then have no ids, and only operators that do not need them apply (see `Graph.edge_ids_fit`).
MAX_EDGE_IDS = 2**31 - 1


def edge_ids_fit(num_edges: int) -> bool:
    """Whether a graph of so many edges can give each an int32 id."""
    return num_edges <= MAX_EDGE_IDS


def transpose(
    offsets: Int64[np.ndarray, " R1"],
    neighbours: Int32[np.ndarray, " E"],
    num_columns: int,
    *,
    with_positions: bool = True,
) -> tuple[Int64[np.ndarray, " C1"], Int32[np.ndarray, " E"], Int32[np.ndarray, " E"] | None]:
    """Rows by the other end.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`, each in 0 … num_columns-1.
        num_columns: C, the number of rows of the result.
        with_positions: whether the third result is wanted; without it the sort moves 5 bytes an edge instead of 8.

    Returns:
        `(offsets, neighbours, edges)` of the transposed structure: int64 `[C+1]`, int32 `[E]` (the row each entry came
        from, ascending inside a row) and the position each entry came from, int32 `[E]`: an edge id, so None past
        `MAX_EDGE_IDS` edges, and where not wanted.
    """
    from scipy.sparse import csr_array

    shape = (len(offsets) - 1, num_columns)
    num_edges = len(neighbours)
    with_positions = with_positions and edge_ids_fit(num_edges)
    carried = np.arange(num_edges, dtype=np.int32) if with_positions else np.zeros(num_edges, np.int8)
    by_column = csr_array((carried, neighbours, offsets), shape=shape).tocsc()
    targets = by_column.indices.astype(np.int32, copy=False)
    return _offsets(by_column.indptr), targets, by_column.data if with_positions else None


def transposed_positions(
    offsets: Int64[np.ndarray, " R1"], neighbours: Int32[np.ndarray, " E"]
) -> Int32[np.ndarray, " E"]:
    """The third result of `transpose` where the transposed rows are known to be the same rows.

    The counting sort goes span by span, so that memory beyond the result does not grow with the edges.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`, E ≤ `MAX_EDGE_IDS`.
    """
    from scipy.sparse import csr_array

    num_rows, num_edges = len(offsets) - 1, len(neighbours)
    positions = empty((num_edges,), np.int32)
    filled = offsets[:-1].copy()  # where each row's next entry goes
    for start, stop in spans(num_edges, max(SPAN, num_rows)):  # a span's sort takes `num_rows` steps: not many of them
        size = stop - start
        one_row = (np.arange(start, stop, dtype=np.int32), neighbours[start:stop], np.array([0, size]))
        by_column = csr_array(one_row, shape=(1, num_rows)).tocsc()
        counts = np.diff(by_column.indptr)
        places = np.repeat(filled - by_column.indptr[:-1], counts)
        places += np.arange(size)
        positions[places] = by_column.data
        filled += counts
    return positions


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
    return np.arange(num_edges, dtype=np.int32 if edge_ids_fit(num_edges) else np.int64)
