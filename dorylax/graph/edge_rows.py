"""Passes over arrays on disk, block by block: rows of arrays, rows of a graph, and numbered files of rows.

Streaming passes read arrays through a `Source`. A pass holds the current block and the next one, which a thread reads
meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int32, Int64, Integer

from dorylax.aligned import empty
from dorylax.graph.rows import in_order, spans
from dorylax.graph.stored import StoredArrays, read_at
from dorylax.graph.validate import GraphError

_HELD_BYTES = 1 << 26  # smaller arrays may be compressed, or in Fortran's order: they are read whole
BLOCK_BYTES = 1 << 24
"""Default size of a block: long enough for a disk to reach its speed."""
ENTRIES = 1 << 20
"""Entries of a block, unless a row has more."""
_ROWS = 1 << 18  # of a block, at most
MOST = 1000
"""Open files of `Buckets`: each gets a piece of every block."""


class Source(NamedTuple):
    """Rows that can be read in parts: `read` returns rows `start:stop`, not to be written to."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int, int], np.ndarray]

    @classmethod
    def held(cls, array: np.ndarray) -> Source:
        """Rows in memory, or memory-mapped ones."""
        return cls(array.shape, array.dtype, lambda start, stop: array[start:stop])

    @classmethod
    def stored(cls, arrays: StoredArrays, name: str) -> Source:
        """Rows of a verified array, which are read into memory of this process, so that no other can change a block.

        The folder or archive stays open while the rows are read. Raises a GraphError if the array is missing, a single
        value, damaged, or so large and compressed that it cannot be read in parts; later also if its file has become
        shorter.
        """
        shape, dtype = arrays.header(name)
        if not shape:
            raise GraphError(f"{name} must have a row for each vertex or edge, got a single value")
        place = arrays.place(name)
        if place is None:
            if int(np.prod(shape, dtype=object)) * dtype.itemsize > _HELD_BYTES:
                raise GraphError(
                    f"array {name} is compressed or in Fortran's order, which cannot be read in parts: write it with "
                    "np.savez"
                )
            return cls.held(arrays.fetch(name))

        def read(start: int, stop: int) -> np.ndarray:
            array = empty((stop - start, *shape[1:]), dtype)
            buffer = array.reshape(-1).view(np.uint8).data
            first = place.offset + start * rows.row_bytes
            if (count := read_at(place.stream, first, buffer)) < len(buffer):
                raise GraphError(
                    f"the file ends at byte {first + count:,}, where rows {start} … {stop - 1} are expected"
                )
            return array

        rows = cls(shape, dtype, read)
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows in order, each block with the number of its first row; by default as many as fit `BLOCK_BYTES`."""
        size = max(1, BLOCK_BYTES // max(1, self.row_bytes)) if rows is None else rows
        yield from in_order(lambda span: (span[0], self.read(*span)), spans(self.shape[0], size), 1)


class RowBlock(NamedTuple):
    """Rows `first:last`; row i has `entries[offsets[i]:offsets[i + 1]]`, and `start` entries of the graph come before.

    Entries are neighbours, or values of edges that are read in their place, `[e, …]`.
    """

    first: int
    last: int
    start: int
    offsets: Int64[np.ndarray, " n1"]
    entries: np.ndarray


@final
class EdgeRows:
    """Compressed rows of V vertices: integers `offsets` `[V+1]` and `neighbours` `[E]`.

    Raises a GraphError if the two do not fit each other, or are no integers.
    """

    def __init__(self, offsets: Source, neighbours: Source) -> None:
        for name, source in (("indptr", offsets), ("indices", neighbours)):
            if len(source.shape) != 1 or source.dtype.kind not in "iu":
                raise GraphError(f"{name} must be integers with one axis, got {source.dtype} {list(source.shape)}")
        if offsets.shape[0] < 1:
            raise GraphError("indptr is empty: expected V+1 numbers")
        self.offsets, self.neighbours = offsets, neighbours
        self.num_vertices, self.num_edges = offsets.shape[0] - 1, neighbours.shape[0]
        if self.num_vertices >= 2**31:
            raise GraphError(f"{self.num_vertices:,} vertices are too many: numbers of vertices are int32")

    @classmethod
    def of_stored(cls, stored: StoredArrays) -> EdgeRows:
        """Return the rows by source in a folder or archive that stays open."""
        stored.require("indptr", "indices")
        return cls(Source.stored(stored, "indptr"), Source.stored(stored, "indices"))

    def blocks(self, entries: int = ENTRIES, values: Source | None = None) -> Iterator[RowBlock]:
        """Yield all rows in order, in blocks of about so many entries, one read ahead.

        `values` gives values of edges, `[E, …]`, in place of neighbours. Raises a GraphError if the offsets are none, or a
        neighbour is no vertex.
        """

        def read(cut: tuple[int, Int64[np.ndarray, " n1"]]) -> RowBlock:
            first, offsets = cut
            start, stop = int(offsets[0]), int(offsets[-1])
            found = self._checked_neighbours(start, stop) if values is None else values.read(start, stop)
            return RowBlock(first, first + len(offsets) - 1, start, offsets - start, found)

        yield from in_order(read, self._cuts(entries), 1)

    def degrees(self) -> Int32[np.ndarray, " V"]:
        """The number of entries of each row, int32 `[V]`. Raises a GraphError if the offsets are none."""
        found = empty((self.num_vertices,), np.int32)
        for first, offsets in self._cuts(max(1, self.num_edges)):
            degrees = np.diff(offsets)
            if degrees.size and int(degrees.max()) >= 2**31:
                raise GraphError(f"a row of {int(degrees.max()):,} entries is too long: at most 2147483647")
            found[first : first + len(degrees)] = degrees
        return found

    def _cuts(self, entries: int) -> Iterator[tuple[int, Int64[np.ndarray, " n1"]]]:
        """Yield the first row and the offsets of each block."""
        end = 0
        for first in range(0, self.num_vertices, _ROWS):
            last = min(first + _ROWS, self.num_vertices)
            offsets = self.offsets.read(first, last + 1).astype(np.int64, copy=False)
            if int(offsets[0]) != end or (np.diff(offsets) < 0).any():
                raise GraphError(f"indptr must begin with 0 and never fall; see rows {first} … {last}")
            end = int(offsets[-1])
            if end > self.num_edges:
                break
            inner = np.searchsorted(offsets, np.arange(int(offsets[0]) + entries, end, entries))
            for start, stop in pairwise(np.unique([0, *inner, last - first]).tolist()):
                yield first + start, offsets[start : stop + 1]
        if end != self.num_edges:
            raise GraphError(f"indptr ends with {end}, expected {self.num_edges}, the length of indices")

    def _checked_neighbours(self, start: int, stop: int) -> Int32[np.ndarray, " e"]:
        neighbours = self.neighbours.read(start, stop)
        if neighbours.size:
            for extreme in (int(neighbours.min()), int(neighbours.max())):
                if not 0 <= extreme < self.num_vertices:
                    raise GraphError(
                        f"indices holds {extreme}: must be ≥ 0 and < {self.num_vertices}, the number of vertices"
                    )
        return neighbours.astype(np.int32, copy=False)


@final
class Buckets(contextlib.ExitStack):
    """At most `MOST` numbered files in a folder, to which rows are dealt; a context in which they are open for writing."""

    def __init__(self, folder: Path, name: str, number: int) -> None:
        super().__init__()
        self._files = [self.enter_context((folder / f"{name}-{bucket}").open("wb")) for bucket in range(number)]

    def deal(self, buckets: Integer[np.ndarray, " n"], rows: np.ndarray) -> None:
        """Append rows to their buckets, in their order."""
        narrow = buckets.astype(np.uint16)  # which NumPy sorts by radix
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(np.bincount(narrow, minlength=len(self._files)))
        for file, own in zip(self._files, np.split(order, ends[:-1]), strict=True):
            if len(own):
                file.write(rows[own].data)

    def read(self, bucket: int, dtype: np.dtype) -> np.ndarray:
        """Return all elements of a bucket, with one axis, and remove its file."""
        path = Path(self._files[bucket].name)
        found = np.fromfile(path, dtype)
        path.unlink()
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._files)))
