"""Rows that come to other places, however many there are: two passes through files, in memory that the caller sets.

The first pass deals rows as they lie to buckets, each of which is to hold consecutive rows of the result; the second
reads bucket by bucket and puts its rows in order. The order determines the rows of a bucket, so the files hold values
alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, final

import numpy as np
from jaxtyping import Int32, Int64, Integer

from dorylax.aligned import empty
from dorylax.graph.reorder import MOST_THREADS, permuted
from dorylax.graph.rows import SPAN, in_order, spans
from dorylax.graph.stream.edge_rows import BLOCK_BYTES, ENTRIES, Cut, EdgeRows, RowBlock, Source
from dorylax.graph.transpose import inverse_permutation
from dorylax.graph.validate import GraphError

MOST = 1000
"""Files at once: each is open, and gets a piece of every block."""


@final
class Buckets:
    """At most `MOST` numbered files in a folder; a context in which they are open for writing."""

    def __init__(self, folder: Path, name: str, number: int) -> None:
        self._paths = [folder / f"{name}-{bucket}" for bucket in range(number)]
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Buckets:
        with contextlib.ExitStack() as stack:
            self._files = [stack.enter_context(path.open("wb", buffering=0)) for path in self._paths]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def deal(self, buckets: Integer[np.ndarray, " n"], take: Callable[[Int64[np.ndarray, " n"]], np.ndarray]) -> None:
        """Append rows to their buckets, in their order; `take` returns the elements of the rows that it is given."""
        narrow = buckets.astype(np.uint16)  # which NumPy sorts by radix
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(np.bincount(narrow, minlength=len(self._files)))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                self.append(bucket, take(order[start:end]))
            start = end

    def append(self, bucket: int, array: np.ndarray) -> None:
        """Append elements to a bucket."""
        left = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        while left:
            left = left[self._files[bucket].write(left) :]

    def read(self, bucket: int, dtype: np.dtype, *, keep: bool = False) -> np.ndarray:
        """All elements of a bucket, with one axis; its file is removed unless `keep`."""
        path = self._paths[bucket]
        array = empty((path.stat().st_size // dtype.itemsize,), dtype)
        with path.open("rb", buffering=0) as file:
            left = array.view(np.uint8).data
            while left:
                left = left[file.readinto(left) :]
        if not keep:
            path.unlink()
        return array

    def rows(self, bucket: int, source: Source, order: Integer[np.ndarray, " n"]) -> Iterator[np.ndarray]:
        """Rows of a bucket, which came from a source, in another order, in blocks; its file is removed."""
        held = self.read(bucket, source.dtype).reshape(len(order), *source.shape[1:])
        for start, stop in spans(len(order), max(1, BLOCK_BYTES // max(1, source.row_bytes))):
            yield held[order[start:stop]]

    def remove(self) -> None:
        """Removes the files that are left."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._paths)))


_BLOCK = 2 * ENTRIES
# Rows of a block, and a span for each thread of `permuted`.
_WORKING_BYTES = max(40 * _BLOCK, 28 * SPAN * min(os.cpu_count() or 1, MOST_THREADS))


@final
class Move:
    """An order of V rows, and the resources to bring rows into it.

    Args:
        order: Row `order[i]` comes to row i, int32 `[V]`, a permutation; `place` is its inverse.
        scratch: A folder for files.
        room: Memory in bytes without the order and its inverse.
    """

    def __init__(self, order: Int32[np.ndarray, " V"], scratch: Path, room: int) -> None:
        self.order, self.scratch, self.room = order, scratch, room
        self.place: Int32[np.ndarray, " V"] = inverse_permutation(order)

    def rows(self, source: Source) -> Iterator[np.ndarray]:
        """Rows of equal length, `[V, …]`, in their new order, in blocks. Raises a GraphError if the room is too small."""
        num_rows, size = len(self.order), max(1, source.row_bytes)
        step = max(1, BLOCK_BYTES // size)
        per = max(1, (self.room - 4 * BLOCK_BYTES) // (size + 24))  # 24: of a bucket's own order
        if num_rows <= per:
            held = source.read(0, num_rows)
            for start, stop in spans(num_rows, step):
                yield held[self.order[start:stop]]
            return
        with _buckets(self, "rows", -(-num_rows // per)) as buckets:
            for start, block in source.blocks():
                buckets.deal(self.place[start : start + len(block)] // per, block.__getitem__)
        for bucket in buckets:
            arrival = _arrival(self.order[bucket * per : (bucket + 1) * per])
            yield from buckets.rows(bucket, source, arrival)


@final
class MovedEdges:
    """Compressed rows in a new order of vertices, whose numbers change with it.

    `widest` is the largest number of bytes of an entry's values and id. After `deal`, `ascending` says whether
    neighbours ascend in the rows as they lie.
    """

    def __init__(self, rows: EdgeRows, move: Move, widest: int = 0) -> None:
        self._rows, self._move = rows, move
        self._degrees = rows.degrees()
        room = move.room - 4 * len(self._degrees) - 2 * BLOCK_BYTES - _WORKING_BYTES
        self._bounds = self._cut(max(1, room // (8 + 4 * (widest > 0) + widest)))
        self._cuts = rows.cuts(_BLOCK)
        self._kept = _buckets(move, "neighbours", len(self._bounds) - 1)
        self.ascending = True

    def offsets(self) -> Iterator[Int64[np.ndarray, " n"]]:
        """The offsets in the new order, int64 `[V+1]` together."""
        yield np.zeros(1, np.int64)
        end = 0
        for start, stop in spans(len(self._degrees)):
            offsets = end + np.cumsum(self._degrees[self._move.order[start:stop]], dtype=np.int64)
            end = int(offsets[-1])
            yield offsets

    def deal(self) -> None:
        """Read the rows, and deal them to the buckets."""
        with self._kept as buckets:
            for block in self._rows.blocks(self._cuts):
                self.ascending = self.ascending and _ascends(block)
                self._deal(buckets, block.first, block.last, block.offsets, block.neighbours)

    def neighbours(self, *, keep: bool = False) -> Iterator[Int32[np.ndarray, " n"]]:
        """After `deal`: neighbours in the new order, by their new numbers and ascending in a row.

        `keep` leaves the buckets for `along`.
        """
        for bucket in self._kept:
            yield self._in_order(bucket, keep=keep, with_positions=False)

    def along(self, source: Source) -> Iterator[np.ndarray]:
        """Values of entries in the new order, `[E, …]` together; after `neighbours`, which kept the buckets."""
        values = _buckets(self._move, "values", len(self._bounds) - 1)

        def read(cut: Cut) -> tuple[Cut, Int64[np.ndarray, " n1"], np.ndarray]:
            return cut, self._rows.offsets_of(cut), source.read(cut.start, cut.stop)

        with values:
            for cut, offsets, block in in_order(read, self._cuts, 1):
                self._deal(values, cut.first, cut.last, offsets, block)
        for bucket in values:
            positions = self._in_order(bucket, keep=True, with_positions=True)
            yield from values.rows(bucket, source, positions)
            del positions  # before the next are made

    def close(self) -> None:
        """Remove the kept buckets."""
        self._kept.remove()

    def _cut(self, entries: int) -> Int64[np.ndarray, " B1"]:
        """Where buckets begin, in new rows: as many as have about so many entries, one row at least; and V."""
        bounds, end = [0], 0
        for start, stop in spans(len(self._degrees)):
            ends = end + np.cumsum(self._degrees[self._move.order[start:stop]], dtype=np.int64)
            full, end = end // entries, int(ends[-1])
            crossed = np.searchsorted(ends // entries, np.arange(full, end // entries) + 1)
            bounds += (np.unique(crossed) + start).tolist()
        return np.unique([*bounds, len(self._degrees)])

    def _deal(
        self, buckets: Buckets, first: int, last: int, offsets: Int64[np.ndarray, " n1"], values: np.ndarray
    ) -> None:
        which = np.searchsorted(self._bounds, self._move.place[first:last], side="right") - 1

        def take(rows: Int64[np.ndarray, " n"]) -> np.ndarray:
            starts = offsets[rows]
            counts = offsets[rows + 1] - starts
            ends = np.cumsum(counts)
            taken: np.ndarray = values[np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1])]
            return taken

        buckets.deal(which, take)

    def _in_order(self, bucket: int, *, keep: bool, with_positions: bool) -> Int32[np.ndarray, " n"]:
        """Of a bucket's neighbours what `permuted` gives."""
        raw = self._kept.read(bucket, np.dtype(np.int32), keep=keep)
        order = self._move.order[self._bounds[bucket] : self._bounds[bucket + 1]]
        offsets = empty((len(order) + 1,), np.int64)
        offsets[0] = 0
        np.cumsum(self._degrees[np.sort(order)], out=offsets[1:])
        found = permuted(offsets, raw, _arrival(order), self._move.place, with_positions=with_positions)
        return found[1]


def _buckets(move: Move, name: str, number: int) -> Buckets:
    if number > MOST:
        raise GraphError(
            f"{move.room / 2**20:,.0f} MiB of memory, beside what is kept for every vertex, would take {number:,} files at "
            f"once, and at most {MOST:,} are opened: give more (--memory)"
        )
    return Buckets(move.scratch, name, number)


def _arrival(order: Int32[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Of rows that came in ascending order where each row of the result is."""
    arrival = np.empty(len(order), np.int64)
    arrival[np.argsort(order)] = np.arange(len(order))
    return arrival


def _ascends(block: RowBlock) -> bool:
    falls = np.flatnonzero(block.neighbours[1:] < block.neighbours[:-1]) + 1
    return bool((block.offsets[np.searchsorted(block.offsets, falls)] == falls).all())
