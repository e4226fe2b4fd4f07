"""Compressed sparse rows: passes over their entries in bounded memory, and the positions of edges.

Passes over all edges go span by span, so that their memory does not grow with the graph and memory-mapped arrays are
read once, front to back, without copies.

A *slot* is a position in the incoming rows: primitives, kernels and programs count edges by slots. A *place* is a position
in the arrays `[E, …]` that users give and get; places follow the edges' ids. `EdgeOrder` describes the permutation between
them. Memory order (`Graph.reorder`) changes slots and never places, so the permutation refers to the vertices' own ids and
is computed for a memory order on first use.

All sorts are stable and take O(V + E) time; the loops are SciPy's (compiled; SciPy comes with JAX). SciPy sees a
matrix, but only its structure is of interest: duplicate entries are different edges and must never be added up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from dorylax.aligned import empty

# Entries in a span: large enough that NumPy's cost per call vanishes, small enough to stay near the caches.
SPAN = 1 << 20

Offsets = Int64[np.ndarray, " R1"]
"""Where each of R rows begins, and the end of the last."""
Ids = Int32[np.ndarray, " E"]
"""A number for each entry of all rows."""

# Edge ids are int32 inside JAX, which without x64 would silently narrow anything wider. Graphs may have more edges than
# this; their edges then have no ids, and only operators that do not need them apply (see `Graph.edge_ids_fit`).
MAX_EDGE_IDS = 2**31 - 1


class BySlot(NamedTuple):
    """Place of the edge in each slot, int32 `[E]`, as JAX carries it; None where slot k is place k."""

    places: Any = None


EdgeOrder = Literal["target", "source"] | np.ndarray | BySlot
"""The places of a graph's edges: ranks by (target, source) or by (source, target) of the vertices' own ids, equal edges as
they lie in the rows; or, int32 `[E]`, the place of each edge where edges are ranked by (target, source); or `BySlot`."""


def spans(num_entries: int, size: int = SPAN) -> Iterator[tuple[int, int]]:
    """Cuts entries 0 … num_entries-1 into consecutive `(start, stop)` spans of at most `size` entries, none empty."""
    for start in range(0, num_entries, size):
        yield start, min(start + size, num_entries)


def row_spans(matrix: np.ndarray) -> Iterator[tuple[int, int]]:
    """Cuts the rows of `[V, …]` into spans of about `SPAN` elements, a row at least."""
    return spans(len(matrix), max(1, SPAN // max(1, matrix[:1].size)))


def rows_between(offsets: Offsets, start: int, stop: int) -> Int32[np.ndarray, " N"]:
    """The row of each entry in `start:stop`, int32 `[stop - start]`."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    counts = np.diff(np.clip(offsets[first : last + 1], start, stop))
    return np.repeat(np.arange(first, last, dtype=np.int32), counts)


def all_rows(offsets: Offsets) -> Ids:
    """The row of each entry, int32 `[E]`."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


def count_values(values: Integer[np.ndarray, " E"], size: int) -> Int64[np.ndarray, " size"]:
    """How often each of 0 … size-1 occurs, int64 `[size]`, without `np.bincount`'s 64-bit copy of all values."""
    counts = np.zeros(size, np.int64)
    for start, stop in spans(len(values), max(SPAN, size)):  # a span's counts take `size` words: do not make them many
        counts += np.bincount(values[start:stop], minlength=size)
    return counts


def ranked(values: Integer[np.ndarray, " N"], size: int) -> tuple[Int64[np.ndarray, " n"], Int32[np.ndarray, " N"]]:
    """The different values, ascending, and the rank of each value among them; values are in 0 … size-1."""
    there = np.zeros(size, bool)
    there[values] = True
    ranks = np.cumsum(there, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(there), ranks[values]


def positions_where(compare: np.ufunc, offsets: Offsets, neighbours: Ids) -> Int64[np.ndarray, " N"]:
    """Positions, ascending, of the entries with `compare(neighbour, row)`: `np.equal` gives loops."""
    found = [
        np.flatnonzero(compare(neighbours[start:stop], rows_between(offsets, start, stop))) + start
        for start, stop in spans(len(neighbours))
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def rows_with_loops(offsets: Offsets, neighbours: Ids) -> Bool[np.ndarray, " R"]:
    """Whether each row lists its own vertex, bool `[R]`."""
    return np.diff(np.searchsorted(positions_where(np.equal, offsets, neighbours), offsets)) > 0


def first_of_equals(offsets: Offsets, neighbours: Ids) -> Bool[np.ndarray, " E"]:
    """True at each entry of sorted rows that is not the same as the one before it in its row, bool `[E]`."""
    keep = np.ones(len(neighbours), bool)
    np.not_equal(neighbours[1:], neighbours[:-1], out=keep[1:])
    starts = offsets[:-1]
    keep[starts[starts < offsets[1:]]] = True  # an equal neighbour, but of another row
    return keep


def offsets_without(offsets: Offsets, dropped: Int64[np.ndarray, " N"]) -> Offsets:
    """Offsets of the rows once the entries `dropped` (positions, ascending) are gone, int64 `[R+1]`."""
    return offsets - np.searchsorted(dropped, offsets)


def edge_ids_fit(num_edges: int) -> bool:
    """Whether a graph of so many edges can give each an int32 id."""
    return num_edges <= MAX_EDGE_IDS


def transpose(
    offsets: Offsets, neighbours: Ids, num_columns: int, *, with_positions: bool = True
) -> tuple[Int64[np.ndarray, " C1"], Ids, Ids | None]:
    """Rows by the other end: `(offsets, neighbours, edges)`.

    Neighbours are the rows that the entries came from, ascending inside a row; `edges` are their positions, edge ids:
    None past `MAX_EDGE_IDS` edges, and without `with_positions` (which saves 3 of 8 bytes an edge in the sort).
    """
    from scipy.sparse import csr_array

    shape = (len(offsets) - 1, num_columns)
    num_edges = len(neighbours)
    with_positions = with_positions and edge_ids_fit(num_edges)
    carried = np.arange(num_edges, dtype=np.int32) if with_positions else np.zeros(num_edges, np.int8)
    by_column = csr_array((carried, neighbours, offsets), shape=shape).tocsc()
    targets = by_column.indices.astype(np.int32, copy=False)
    return by_column.indptr.astype(np.int64, copy=False), targets, by_column.data if with_positions else None


def transposed_positions(offsets: Offsets, neighbours: Ids) -> Ids:
    """The third result of `transpose` for rows that equal their transpose.

    The counting sort goes span by span, so that memory beyond the result does not grow with the edges.
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
    sources: Ids, targets: Ids, num_vertices: int, *, with_positions: bool = True
) -> tuple[Offsets, Ids, Integer[np.ndarray, " E"]]:
    """Rows by target, sources ascending inside a row, equal edges in their order: `(offsets, sources, positions)`.

    Positions are those of the entries in the arguments, int32 (int64 past 2³¹ edges; zeros, int8, without
    `with_positions`).
    """
    from scipy.sparse import coo_array

    dtype = np.int8 if not with_positions else np.int32 if edge_ids_fit(len(sources)) else np.int64
    carried = np.arange(len(sources), dtype=dtype) if with_positions else np.zeros(len(sources), dtype)
    edges = coo_array((carried, (sources, targets)), shape=(num_vertices, num_vertices))
    edges.has_canonical_format = True  # keeps tocsr() from adding up duplicates
    by_target = edges.tocsr().tocsc()  # by source first: the second sort, being stable, leaves sources ascending
    offsets = by_target.indptr.astype(np.int64, copy=False)
    return offsets, by_target.indices.astype(np.int32, copy=False), by_target.data


def places_of_slots(
    order: Literal["target", "source"] | np.ndarray, offsets: Offsets, sources: Ids, vertex_ids: Int32[np.ndarray, " V"]
) -> Integer[np.ndarray, " E"]:
    """The place of the edge in each slot of rows whose vertices have other ids, by two counting sorts, O(V + E)."""
    sources, targets = vertex_ids[sources], vertex_ids[all_rows(offsets)]
    major, minor = (sources, targets) if isinstance(order, str) and order == "source" else (targets, sources)
    _, _, slots = compress(minor, major, len(offsets) - 1)
    ranks = inverse_permutation(slots)
    return ranks if isinstance(order, str) else order[ranks]


def sorted_by(major: Integer[np.ndarray, " E"], minor: Integer[np.ndarray, " E"]) -> bool:
    """Whether pairs ascend by (major, minor), equal ones allowed."""
    for start, stop in spans(len(major)):
        a, b = major[max(start, 1) - 1 : stop], minor[max(start, 1) - 1 : stop]
        if not ((a[1:] > a[:-1]) | ((a[1:] == a[:-1]) & (b[1:] >= b[:-1]))).all():
            return False
    return True


def inverse_permutation(order: Integer[np.ndarray, " N"]) -> Integer[np.ndarray, " N"]:
    """The permutation p with `p[order[i]] = i`, of the same type."""
    inverse = empty((len(order),), order.dtype)
    inverse[order] = np.arange(len(order), dtype=order.dtype)
    return inverse


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the results of `work`, called on several threads, in the order of items.

    At most one result more than there are threads is held. An error of `work` is raised in place of its result.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
