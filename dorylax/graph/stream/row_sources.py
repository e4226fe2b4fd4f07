"""Rows of arrays, read block by block: streaming passes read the graph through a `Source`.

Rows lie in a file (`StoredRows`) or in memory (`HeldRows`). A pass holds the current block and the next one, which a thread
reads meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, final, runtime_checkable

import numpy as np

from dorylax.aligned import empty
from dorylax.graph.rows import spans
from dorylax.graph.stored import Place, StoredArrays, read_at
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
    """Rows in a file, which are read into memory of this process: nothing stays mapped, and nobody can change a block.

    Args:
        place: Position of the rows; its file stays open while this is used.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.shape: tuple[int, ...] = place.shape
        self.dtype: np.dtype = place.dtype
        self._row_bytes = row_bytes(self)

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Source`.

        Raises:
            OSError: The file cannot be read.
            GraphError: The file has become shorter.
        """
        array = empty((stop - start, *self.shape[1:]), self.dtype)
        buffer = array.reshape(-1).view(np.uint8).data
        first = self._place.offset + start * self._row_bytes
        if (read := read_at(self._place.stream, first, buffer)) < len(buffer):
            raise GraphError(f"the file ends at byte {first + read:,}, where rows {start} … {stop - 1} are expected")
        return array


def rows_of(stored: StoredArrays, name: str) -> Source:
    """Return the rows of a verified array.

    Args:
        stored: Folder or archive, open while the rows are read.
        name: Name of an array with at least one axis.

    Raises:
        GraphError: The array is missing, damaged, or so large and compressed that it cannot be read in parts.
    """
    shape, dtype = stored.header(name)
    if not shape:
        raise GraphError(f"{name} must have a row for each vertex or edge, got a single value")
    place = stored.place(name)
    if place is not None:
        return StoredRows(place)
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > _HELD_BYTES:
        raise GraphError(
            f"array {name} is compressed or in Fortran's order, which cannot be read in parts: write it with np.savez"
        )
    return HeldRows(stored.fetch(name))


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
