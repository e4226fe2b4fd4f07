"""The edges of a graph as a stream of whole rows, wherever they lie (`row_sources.Source`), in the memory of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.aligned import empty
from dorylax.graph.stored import StoredArrays
from dorylax.graph.stream.row_sources import HeldRows, Source, ahead, rows_of
from dorylax.graph.validate import GraphError

ENTRIES = 1 << 20
"""Entries of a block, unless a row has more."""
_ROWS = 1 << 18  # of a block, at most


class Cut(NamedTuple):
    """Consecutive rows `first:last`, and their entries `start:stop`."""

    first: int
    last: int
    start: int
    stop: int


class RowBlock(NamedTuple):
    """Consecutive rows.

    Attributes:
        first, last: which.
        start: of their first entry among all.
        offsets: where each begins in `neighbours`, int64 `[last - first + 1]`.
        neighbours: int32.
    """

    first: int
    last: int
    start: int
    offsets: Int64[np.ndarray, " n1"]
    neighbours: Int32[np.ndarray, " e"]


@final
class EdgeRows:
    """Compressed rows of V vertices.

    Args:
        offsets: integers `[V+1]`.
        neighbours: integers `[E]`.
        names: what messages call these two.

    Raises:
        GraphError: the two do not fit each other, or are no integers.
    """

    def __init__(self, offsets: Source, neighbours: Source, names: tuple[str, str] = ("indptr", "indices")) -> None:
        for name, source in zip(names, (offsets, neighbours), strict=True):
            if len(source.shape) != 1 or source.dtype.kind not in "iu":
                raise GraphError(f"{name} must be integers with one axis, got {source.dtype} {list(source.shape)}")
        if offsets.shape[0] < 1:
            raise GraphError(f"{names[0]} is empty: expected V+1 numbers")
        self.offsets, self.neighbours, self._names = offsets, neighbours, names
        self.num_vertices, self.num_edges = offsets.shape[0] - 1, neighbours.shape[0]
        if self.num_vertices >= 2**31:
            raise GraphError(f"{self.num_vertices:,} vertices are too many: numbers of vertices are int32")

    @classmethod
    def of_stored(cls, stored: StoredArrays) -> EdgeRows:
        """Return the rows by source in a folder or archive that stays open."""
        stored.require("indptr", "indices")
        return cls(rows_of(stored, "indptr"), rows_of(stored, "indices"))

    @classmethod
    def of_arrays(cls, offsets: np.ndarray, neighbours: np.ndarray) -> EdgeRows:
        """Rows in memory, or memory-mapped."""
        return cls(HeldRows(offsets), HeldRows(neighbours), ("offsets", "sources"))

    def cuts(self, entries: int = ENTRIES) -> list[Cut]:
        """All rows in order, cut into blocks of about so many entries; checks all offsets.

        Raises:
            GraphError: the offsets are none.
        """
        name = self._names[0]
        found: list[Cut] = []
        end = 0
        for first in range(0, self.num_vertices, _ROWS):
            last = min(first + _ROWS, self.num_vertices)
            offsets = self._offsets(first, last)
            if int(offsets[0]) != end or (np.diff(offsets) < 0).any():
                raise GraphError(f"{name} must begin with 0 and never fall; see rows {first} … {last}")
            end = int(offsets[-1])
            inner = np.searchsorted(offsets, np.arange(int(offsets[0]) + entries, end, entries))
            bounds = np.unique([0, *inner, last - first])
            ends = offsets[bounds].tolist()
            rows = (bounds + first).tolist()
            found += map(Cut, rows[:-1], rows[1:], ends[:-1], ends[1:])
        if end != self.num_edges:
            raise GraphError(f"{name} ends with {end}, expected {self.num_edges}, the length of {self._names[1]}")
        return found

    def degrees(self) -> Int32[np.ndarray, " V"]:
        """The number of entries of each row, int32 `[V]`.

        Raises:
            GraphError: the offsets are none.
        """
        found = empty((self.num_vertices,), np.int32)
        for cut in self.cuts(max(1, self.num_edges)):
            degrees = np.diff(self._offsets(cut.first, cut.last))
            if degrees.size and int(degrees.max()) >= 2**31:
                raise GraphError(f"a row of {int(degrees.max()):,} entries is too long: at most 2147483647")
            found[cut.first : cut.last] = degrees
        return found

    def read(self, cut: Cut) -> RowBlock:
        """The rows of a cut.

        Raises:
            GraphError: a neighbour is no vertex.
        """
        offsets = self.offsets_of(cut)
        neighbours = self.neighbours.read(cut.start, cut.stop)
        if neighbours.size:
            for extreme in (int(neighbours.min()), int(neighbours.max())):
                if not 0 <= extreme < self.num_vertices:
                    raise GraphError(
                        f"{self._names[1]} holds {extreme}: must be ≥ 0 and < {self.num_vertices}, the number of vertices"
                    )
        return RowBlock(cut.first, cut.last, cut.start, offsets, neighbours.astype(np.int32, copy=False))

    def blocks(self, cuts: Iterable[Cut]) -> Iterator[RowBlock]:
        """The rows of cuts, one read ahead."""
        return ahead(self.read, cuts)

    def offsets_of(self, cut: Cut) -> Int64[np.ndarray, " n1"]:
        """Where the rows of a cut begin among its entries, int64 `[last - first + 1]`."""
        return self._offsets(cut.first, cut.last) - cut.start

    def _offsets(self, first: int, last: int) -> Int64[np.ndarray, " n1"]:
        return self.offsets.read(first, last + 1).astype(np.int64, copy=False)
