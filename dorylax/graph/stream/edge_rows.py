"""Rows of arrays read block by block, and the edges of a graph as a stream of whole rows, in the memory of a block.

Streaming passes read arrays through a `Source`. A pass holds the current block and the next one, which a thread reads
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int32, Int64

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


class Cut(NamedTuple):
    """Consecutive rows `first:last`, and their entries `start:stop`."""

    first: int
    last: int
    start: int
    stop: int


class RowBlock(NamedTuple):
    """Rows `first:last`; row i has `neighbours[offsets[i]:offsets[i + 1]]`, and `start` entries of the graph come before."""

    first: int
    last: int
    start: int
    offsets: Int64[np.ndarray, " n1"]
    neighbours: Int32[np.ndarray, " e"]


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

    def cuts(self, entries: int = ENTRIES) -> list[Cut]:
        """All rows in order, cut into blocks of about so many entries. Raises a GraphError if the offsets are none."""
        found: list[Cut] = []
        end = 0
        for first in range(0, self.num_vertices, _ROWS):
            last = min(first + _ROWS, self.num_vertices)
            offsets = self._offsets(first, last)
            if int(offsets[0]) != end or (np.diff(offsets) < 0).any():
                raise GraphError(f"indptr must begin with 0 and never fall; see rows {first} … {last}")
            end = int(offsets[-1])
            inner = np.searchsorted(offsets, np.arange(int(offsets[0]) + entries, end, entries))
            bounds = np.unique([0, *inner, last - first])
            ends = offsets[bounds].tolist()
            rows = (bounds + first).tolist()
            found += map(Cut, rows[:-1], rows[1:], ends[:-1], ends[1:])
        if end != self.num_edges:
            raise GraphError(f"indptr ends with {end}, expected {self.num_edges}, the length of indices")
        return found

    def degrees(self) -> Int32[np.ndarray, " V"]:
        """The number of entries of each row, int32 `[V]`. Raises a GraphError if the offsets are none."""
        found = empty((self.num_vertices,), np.int32)
        for cut in self.cuts(max(1, self.num_edges)):
            degrees = np.diff(self._offsets(cut.first, cut.last))
            if degrees.size and int(degrees.max()) >= 2**31:
                raise GraphError(f"a row of {int(degrees.max()):,} entries is too long: at most 2147483647")
            found[cut.first : cut.last] = degrees
        return found

    def read(self, cut: Cut) -> RowBlock:
        """The rows of a cut. Raises a GraphError if a neighbour is no vertex."""
        offsets = self.offsets_of(cut)
        neighbours = self.neighbours.read(cut.start, cut.stop)
        if neighbours.size:
            for extreme in (int(neighbours.min()), int(neighbours.max())):
                if not 0 <= extreme < self.num_vertices:
                    raise GraphError(
                        f"indices holds {extreme}: must be ≥ 0 and < {self.num_vertices}, the number of vertices"
                    )
        return RowBlock(cut.first, cut.last, cut.start, offsets, neighbours.astype(np.int32, copy=False))

    def blocks(self, cuts: Iterable[Cut]) -> Iterator[RowBlock]:
        """The rows of cuts, one read ahead."""
        return in_order(self.read, cuts, 1)

    def offsets_of(self, cut: Cut) -> Int64[np.ndarray, " n1"]:
        """Where the rows of a cut begin among its entries, int64 `[last - first + 1]`."""
        return self._offsets(cut.first, cut.last) - cut.start

    def _offsets(self, first: int, last: int) -> Int64[np.ndarray, " n1"]:
        return self.offsets.read(first, last + 1).astype(np.int64, copy=False)
