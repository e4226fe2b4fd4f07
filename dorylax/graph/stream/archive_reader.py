"""Arrays of an archive, read block by block into buffers of the process' own: nothing is mapped, so nothing stays resident.

What passes over a graph in a stream takes a `Source` and does not know where its rows are: in a file (`StoredRows`), or in
memory already (`HeldRows`). A block that is being used and the one after it, which a thread reads meanwhile, are all that a
pass holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, final, runtime_checkable

import numpy as np

from dorylax.aligned import empty
from dorylax.graph.npz import Archive, Place
from dorylax.graph.rows import spans
from dorylax.graph.validate import GraphError

_HELD_BYTES = 1 << 26  # arrays of fewer bytes may be compressed, or in another order: they are read whole
BLOCK_BYTES = 1 << 24
"""Of a block, where nothing else says how long one is: long enough for a disk to reach its speed."""

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Source(Protocol):
    """Rows that can be read in parts.

    Attributes:
        shape: of all, the number of rows first.
        dtype: of an element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start:stop`; not to be written to."""
        ...


@final
class HeldRows:
    """Rows in memory, or memory-mapped ones."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = array.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Source`."""
        return self._array[start:stop]


@final
class StoredRows:
    """Rows in a file.

    Args:
        descriptor: of the file, open for reading as long as this is used.
        place: where they lie in it.
    """

    def __init__(self, descriptor: int, place: Place) -> None:
        self._descriptor, self._first = descriptor, place.elements
        self.shape: tuple[int, ...] = place.shape
        self.dtype: np.dtype = place.dtype
        self._row_bytes = row_bytes(self)

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Source`.

        Raises:
            OSError: the file cannot be read.
            GraphError: it has become shorter.
        """
        array = empty((stop - start, *self.shape[1:]), self.dtype)
        buffer = array.reshape(-1).view(np.uint8).data
        read, first = 0, self._first + start * self._row_bytes
        while read < len(buffer):
            more = os.preadv(self._descriptor, [buffer[read:]], first + read)
            if not more:
                raise GraphError(
                    f"the file ends at byte {first + read:,}, where rows {start} … {stop - 1} are expected"
                )
            read += more
        return array


def rows_of_member(archive: Archive, name: str) -> Source:
    """An array of an archive; its bytes are compared with their checksums here, once.

    Args:
        archive: open as long as the rows are read.
        name: of the array, with at least one axis.

    Raises:
        GraphError: it is not there, damaged, or large and stored so that only all of it can be read.
    """
    shape, dtype = archive.header(name)
    if not shape:
        raise GraphError(f"{name} must have a row for each vertex or edge, got a single value")
    place = archive.place(name)
    if place is not None:
        return StoredRows(archive.descriptor, place)
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > _HELD_BYTES:
        raise GraphError(
            f"array {name} is compressed or in Fortran's order, which cannot be read in parts: write the archive by "
            "np.savez or Dataset.save_npz"
        )
    return HeldRows(archive.fetch(name))


def row_bytes(source: Source) -> int:
    """Of one row."""
    return int(np.prod(source.shape[1:], dtype=np.int64)) * source.dtype.itemsize


def blocks(source: Source, rows: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """All rows in order: the number of the first, and so many of them.

    Args:
        source: the rows.
        rows: of a block, ≥ 1; by default as many as `BLOCK_BYTES` have room for.
    """
    size = max(1, BLOCK_BYTES // max(1, row_bytes(source))) if rows is None else rows
    yield from ahead(lambda span: (span[0], source.read(*span)), spans(source.shape[0], size))


def ahead(read: Callable[[T], R], parts: Iterable[T]) -> Iterator[R]:
    """`map(read, parts)`, whose next result a thread reads while one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = None
        for part in parts:
            begun = thread.submit(read, part)
            if coming is not None:
                yield coming.result()
            coming = begun
        if coming is not None:
            yield coming.result()
