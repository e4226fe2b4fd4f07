"""Passes over the entries of compressed sparse rows in bounded memory: spans of entries, and the row of each entry.

Passes over all edges go span by span, so that their memory does not grow with the graph and memory-mapped arrays are
read once, front to back, without copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

# Entries in a span: large enough that NumPy's cost per call vanishes, small enough to stay near the caches.
SPAN = 1 << 20


def spans(num_entries: int, size: int = SPAN) -> Iterator[tuple[int, int]]:
    """Cuts entries 0 … num_entries-1 into consecutive `(start, stop)` spans of at most `size` entries, none empty."""
    for start in range(0, num_entries, size):
        yield start, min(start + size, num_entries)


def row_spans(matrix: np.ndarray) -> Iterator[tuple[int, int]]:
    """Cuts the rows of `[V, …]` into spans of about `SPAN` elements, a row at least."""
    return spans(len(matrix), max(1, SPAN // max(1, matrix[:1].size)))


def rows_between(offsets: Int64[np.ndarray, " R1"], start: int, stop: int) -> Int32[np.ndarray, " N"]:
    """The row of each entry in `start:stop`, int32 `[stop - start]`."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    counts = np.diff(np.clip(offsets[first : last + 1], start, stop))
    return np.repeat(np.arange(first, last, dtype=np.int32), counts)


def all_rows(offsets: Int64[np.ndarray, " R1"]) -> Int32[np.ndarray, " E"]:
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


def count_rows_where(chosen: Int64[np.ndarray, " N"], offsets: Int64[np.ndarray, " R1"]) -> Int64[np.ndarray, " R"]:
    """How many of the entries `chosen` (positions, ascending) lie in each row, int64 `[R]`."""
    return np.diff(np.searchsorted(chosen, offsets)).astype(np.int64, copy=False)


def positions_where(
    compare: np.ufunc, offsets: Int64[np.ndarray, " R1"], neighbours: Int32[np.ndarray, " E"]
) -> Int64[np.ndarray, " N"]:
    """Positions, ascending, of the entries with `compare(neighbour, row)`: `np.equal` gives loops."""
    found = [
        np.flatnonzero(compare(neighbours[start:stop], rows_between(offsets, start, stop))) + start
        for start, stop in spans(len(neighbours))
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def rows_with_loops(offsets: Int64[np.ndarray, " R1"], neighbours: Int32[np.ndarray, " E"]) -> Bool[np.ndarray, " R"]:
    """Whether each row lists its own vertex, bool `[R]`."""
    return count_rows_where(positions_where(np.equal, offsets, neighbours), offsets) > 0


def first_of_equals(offsets: Int64[np.ndarray, " R1"], neighbours: Int32[np.ndarray, " E"]) -> Bool[np.ndarray, " E"]:
    """True at each entry of sorted rows that is not the same as the one before it in its row, bool `[E]`."""
    keep = np.ones(len(neighbours), bool)
    np.not_equal(neighbours[1:], neighbours[:-1], out=keep[1:])
    starts = offsets[:-1]
    keep[starts[starts < offsets[1:]]] = True  # an equal neighbour, but of another row
    return keep


def offsets_without(offsets: Int64[np.ndarray, " R1"], dropped: Int64[np.ndarray, " N"]) -> Int64[np.ndarray, " R1"]:
    """Offsets of the rows once the entries `dropped` (positions, ascending) are gone, int64 `[R+1]`."""
    return offsets - np.searchsorted(dropped, offsets)


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
