"""Storage of a value's rows: in memory, or in a file from which each unit's rows are read in turn."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.graph.mapped import changed, mapping_of
from dorylax.streaming.direct import DirectFile, anonymous, room, up


class Column(ABC):
    """The rows of one value, read unit by unit."""

    def room(self, unit: int) -> int:  # noqa: ARG002
        """Buffer size in bytes that `read` needs; 0 if the rows are in memory."""
        return 0

    @abstractmethod
    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:
        """Read a unit's rows: a view of memory, or of the buffer.

        Raises:
            OSError: The rows cannot be read.
        """

    def close(self) -> None:  # noqa: B027
        """Release memory and files, except arrays that have another owner."""


class WrittenColumn(Column):
    """A column whose rows this process writes."""

    def on_disk(self, unit: int) -> bool:  # noqa: ARG002
        """Whether a unit's rows are written to a file."""
        return False

    @abstractmethod
    def write(self, unit: int, rows: np.ndarray) -> None:
        """Write a unit's rows.

        Raises:
            OSError: The disk is full.
        """


@final
class WholeColumn(WrittenColumn):
    """All rows in one array, for random reads.

    Args:
        array: `[V, …]` or `[E, …]`.
        bounds: First rows of the units, and the number of rows, int64 `[K+1]`.
    """

    def __init__(self, array: np.ndarray, bounds: np.ndarray) -> None:
        self.array, self._bounds = array, bounds

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        """See `Column`."""
        return self.array[self._bounds[unit] : self._bounds[unit + 1]]

    def write(self, unit: int, rows: np.ndarray) -> None:
        """See `Column`."""
        self.array[self._bounds[unit] : self._bounds[unit + 1]] = rows


@final
class ComputedColumn(Column):
    """Rows computed from their numbers.

    Args:
        function: `(first, last) -> rows`.
        bounds: First rows of the units, and the number of rows, int64 `[K+1]`.
    """

    def __init__(self, function: Callable[[int, int], np.ndarray], bounds: np.ndarray) -> None:
        self._function, self._bounds = function, bounds

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        """See `Column`."""
        return self._function(int(self._bounds[unit]), int(self._bounds[unit + 1]))


@final
class PiecesColumn(WrittenColumn):
    """Units' rows in separate arrays in memory, of all units or of some; rows may lie along any axis.

    Args:
        units: Units whose rows are in memory, once written.
        others: Column of the other units; None if there are none.
    """

    def __init__(self, units: Collection[int], others: Column | None) -> None:
        self._units, self._others = units, others
        self._pieces: dict[int, np.ndarray] = {}

    def room(self, unit: int) -> int:
        """See `Column`."""
        return 0 if self._others is None or unit in self._units else self._others.room(unit)

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:
        """See `Column`."""
        return self._pieces[unit] if self._others is None or unit in self._units else self._others.read(unit, buffer)

    def on_disk(self, unit: int) -> bool:
        """See `WrittenColumn`."""
        return unit not in self._units

    def write(self, unit: int, rows: np.ndarray) -> None:
        """See `Column`. Reuses the array of the previous epoch."""
        if self.on_disk(unit):
            assert isinstance(self._others, WrittenColumn)
            self._others.write(unit, rows)
            return
        piece = self._pieces.get(unit)
        if piece is None or piece.shape != rows.shape:
            piece = anonymous(rows.nbytes).view(rows.dtype).reshape(rows.shape)
            self._pieces[unit] = piece
        piece[...] = rows

    def close(self) -> None:
        """See `Column`."""
        self._pieces.clear()
        if self._others is not None:
            self._others.close()


@final
class FileColumn(Column):
    """Consecutive rows in an existing file.

    Args:
        path: Path of the file.
        position: Position of the first row, in bytes.
        dtype: Type of the elements.
        row: Shape of a row.
        bounds: First rows of the units, and the number of rows, int64 `[K+1]`.
        limit: Exclusive upper bound of int32 elements, checked at every read because kernels do not check; None: no bound.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        position: int,
        dtype: Any,
        row: tuple[int, ...],
        bounds: np.ndarray,
        *,
        limit: int | None = None,
    ) -> None:
        self._file, self._limit = DirectFile(path), limit
        self._position, self._dtype, self._row, self._bounds = position, np.dtype(dtype), row, bounds
        self._bytes = int(np.prod(row, dtype=np.int64)) * self._dtype.itemsize

    def room(self, unit: int) -> int:
        """See `Column`."""
        return room(self._size(unit))

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:
        """See `Column`."""
        assert buffer is not None
        found = self._file.read(buffer, self._position + int(self._bounds[unit]) * self._bytes, self._size(unit))
        rows: np.ndarray = found.view(self._dtype).reshape(-1, *self._row)
        if self._limit is not None and rows.size and rows.view(np.uint32).max() >= self._limit:  # also negative values
            raise changed(self._file.path)
        return rows

    def check(self, first: np.ndarray) -> None:
        """Compare the first rows with those that were loaded.

        Args:
            first: First rows of the mapped array.

        Raises:
            RunError: The rows differ.
        """
        size = first.nbytes
        found = self._file.read(anonymous(room(size)), self._position, size)
        if found.tobytes() != first.tobytes():
            raise changed(self._file.path)

    def close(self) -> None:
        """See `Column`."""
        self._file.close()

    def _size(self, unit: int) -> int:
        size: int = int(self._bounds[unit + 1] - self._bounds[unit]) * self._bytes
        return size


@final
class ScratchColumn(WrittenColumn):
    """Each unit's rows on whole blocks of a temporary file; rows may lie along any axis.

    Args:
        folder: Folder of the file, which is unlinked as soon as it is open.
        name: Name of the file in error messages.
        count: Number of units. Their rows have the same shapes at every write.
        dtype: Type of the elements.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, folder: Path, name: str, count: int, dtype: Any) -> None:
        self._count, self._dtype = count, np.dtype(dtype)
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._positions: dict[int, int] = {}
        self._end = 0
        self._file = DirectFile(folder / f"{name}-{os.getpid()}.rows", writes=True)
        self._buffer: np.ndarray | None = None

    @property
    def bytes(self) -> int:
        """Length of the file, in bytes, so far."""
        return self._end

    def on_disk(self, unit: int) -> bool:  # noqa: ARG002
        """See `WrittenColumn`."""
        return True

    def room(self, unit: int) -> int:
        """See `Column`."""
        return room(self._size(unit))

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:
        """See `Column`."""
        assert buffer is not None
        found = self._file.read(buffer, self._positions[unit], self._size(unit))
        rows: np.ndarray = found.view(self._dtype).reshape(self._shapes[unit])
        return rows

    def write(self, unit: int, rows: np.ndarray) -> None:
        """See `Column`."""
        if unit not in self._shapes:
            self._shapes[unit], self._positions[unit] = rows.shape, self._end
            self._end += up(self._size(unit))
        assert rows.shape == self._shapes[unit]
        size = self._size(unit)
        if self._buffer is None or len(self._buffer) < up(size):
            self._buffer = anonymous(up(size))
        self._buffer[:size].view(self._dtype).reshape(rows.shape)[...] = rows
        self._file.write(self._buffer[: up(size)], self._positions[unit])
        if unit == self._count - 1:
            self._buffer = None

    def _size(self, unit: int) -> int:
        return math.prod(self._shapes[unit]) * int(self._dtype.itemsize)

    def close(self) -> None:
        """See `Column`."""
        self._file.close()
        self._buffer = None


@final
class JoinedColumn(Column):
    """A value whose blocks of columns were written one after the other.

    Args:
        parts: Blocks of columns, in order along the last axis.
    """

    def __init__(self, parts: Sequence[Column]) -> None:
        self._parts = parts

    def room(self, unit: int) -> int:
        """See `Column`."""
        return sum(part.room(unit) for part in self._parts)

    def read(self, unit: int, buffer: np.ndarray | None) -> np.ndarray:
        """See `Column`."""
        assert buffer is not None
        rows, begin = [], 0
        for part in self._parts:
            end = begin + part.room(unit)
            rows.append(part.read(unit, buffer[begin:end]))
            begin = end
        return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=-1)

    def close(self) -> None:
        """See `Column`."""
        for part in self._parts:
            part.close()


def file_of(array: np.ndarray) -> tuple[Path, int] | None:
    """Return the file from which a contiguous array is mapped and its position there; None if it is not mapped."""
    if not array.flags.c_contiguous or mapping_of(array) is None:
        return None
    base: Any = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base, np.memmap) or base.filename is None:
        return None
    return Path(base.filename), base.offset + array.ctypes.data - base.ctypes.data
