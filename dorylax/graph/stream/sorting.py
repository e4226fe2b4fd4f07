"""Sorting and merging records that are in memory: a key, and values that go with it. Both are stable.

The loops are native (`kernel/sort.cc`): a radix sort and a tournament of runs. NumPy does the same, slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Int64

from dorylax.graph.stream.native import address, library

_WORTH_A_THREAD = 1 << 16  # records; fewer are merged sooner than a second thread has begun


class Records(NamedTuple):
    """Some records.

    Attributes:
        keys: int64 `[n]`.
        values: `[n]`, of any type of fixed size, structured ones included; None where keys are all there is.
    """

    keys: Int64[np.ndarray, " n"]
    values: np.ndarray | None = None

    def part(self, first: int, end: int) -> Records:
        """Records `first:end`, not copied."""
        return Records(self.keys[first:end], None if self.values is None else self.values[first:end])


def empty_records(size: int, dtype: np.dtype[Any] | None) -> Records:
    """Room for records."""
    return Records(np.empty(size, np.int64), None if dtype is None else np.empty(size, dtype))


@final
class Sorter:
    """Sorts records, with memory that it keeps.

    Args:
        size: at most so many records at once, fewer than 2³².
        dtype: of their values; None where there are none.
    """

    def __init__(self, size: int, dtype: np.dtype[Any] | None) -> None:
        self._other = empty_records(size, dtype)
        # Values of four bytes are carried through the sort, others gathered at its end.
        self._gathers = dtype is not None and dtype.itemsize != 4
        self._order = np.empty((2, size if self._gathers else 0), np.uint32)

    @staticmethod
    def bytes_per_record(dtype: np.dtype[Any] | None) -> int:
        """What a sorter takes for each."""
        width = 0 if dtype is None else dtype.itemsize
        return 8 + width + (8 if width not in (0, 4) else 0)

    def sort(self, records: Records) -> Records:
        """Sorts by key; equal keys keep their order.

        Args:
            records: are overwritten.

        Returns:
            The same in order, in the sorter's memory or in that of `records`, until it sorts again.
        """
        size = len(records.keys)
        native = library()
        if native is None:
            order = np.argsort(records.keys, kind="stable")
            return Records(records.keys[order], None if records.values is None else records.values[order])
        other, places = self._other.part(0, size), self._order
        if self._gathers:
            places[0, :size] = np.arange(size, dtype=np.uint32)
            carried: list[np.ndarray | None] = [places[0], places[1]]
        else:
            carried = [records.values, other.values]
        swapped = native.dorylax_stream_sort(
            size, address(records.keys), address(carried[0]), address(other.keys), address(carried[1])
        )
        if not self._gathers:
            return other if swapped else records
        assert records.values is not None
        assert other.values is not None
        native.dorylax_stream_gather(
            size, records.values.itemsize, address(records.values), address(places[swapped]), address(other.values)
        )
        return Records(other.keys if swapped else records.keys, other.values)


def merge(runs: Sequence[Records], out: Records, threads: int = 1) -> None:
    """Merges sorted runs; of equal keys those of earlier runs come first.

    Args:
        runs: at least one.
        out: as many records as they have together.
        threads: merge so many parts at once.
    """
    if library() is None:
        keys = np.concatenate([run.keys for run in runs])
        order = np.argsort(keys, kind="stable")
        out.keys[:] = keys[order]
        if out.values is not None:
            out.values[:] = np.concatenate([run.values for run in runs if run.values is not None])[order]
        return
    if threads == 1 or len(out.keys) < _WORTH_A_THREAD:
        _merge_part(runs, out)
        return
    longest = max(runs, key=lambda run: len(run.keys)).keys
    pivots = [longest[len(longest) * part // threads] for part in range(1, threads)]
    # The same side everywhere, so that equal keys are all in one part.
    cuts = [[0, *np.searchsorted(run.keys, pivots).tolist(), len(run.keys)] for run in runs]
    parts, at = [], 0
    for part in range(threads):
        pieces = [run.part(cut[part], cut[part + 1]) for run, cut in zip(runs, cuts, strict=True)]
        size = sum(len(piece.keys) for piece in pieces)
        parts.append((pieces, out.part(at, at + size)))
        at += size
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: _merge_part(*part), parts))


def _merge_part(runs: Sequence[Records], out: Records) -> None:
    native = library()
    assert native is not None
    number = len(runs)
    width = 0 if out.values is None else out.values.itemsize
    keys = (ctypes.c_void_p * number)(*(address(run.keys) for run in runs))
    values = (ctypes.c_void_p * number)(*(address(run.values) for run in runs))
    counts = np.array([len(run.keys) for run in runs], np.int64)
    native.dorylax_stream_merge(number, keys, values, address(counts), width, address(out.keys), address(out.values))
