"""Edges from an archive of NumPy arrays: `edge_index` `[2, E]`, or one array `[E]` for each end; packed ones, too.

Members are read from front to back, so nothing of an archive is ever in memory but a piece of each array.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.durable import named
from dorylax.graph.npz import NPY_DAMAGE
from dorylax.graph.stream.readers.base import Chunk, EdgeReader, Values, Wanted, checked_values, ends_of
from dorylax.graph.validate import GraphError
from dorylax.graph.zip_arrays import header_of
from dorylax.near_matches import did_you_mean

_INDEX = "edge_index"
_DAMAGE = (*NPY_DAMAGE, zipfile.BadZipFile, RuntimeError)


@final
class NpzReader(EdgeReader):
    """A file of `np.savez` or `np.savez_compressed`.

    Args:
        path: of the file.
        wanted: what to read of it; values only by name.

    Raises:
        GraphError: it is damaged, or has no such arrays.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted = path, wanted
        with opened_archive(self._path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            self._ends: tuple[str, ...] = (_INDEX,)
            if wanted.source or wanted.target or _INDEX not in names:
                self._ends = (wanted.source or "sources", wanted.target or "targets")
            kept = dict(wanted.values or {})
            arrays = {name: MemberRows(archive, name) for name in (*self._ends, *kept)}
        shape = arrays[self._ends[0]].shape
        self._size = shape[-1] if self._ends == (_INDEX,) else shape[0] if shape else 0
        for name, array in arrays.items():
            expected = [2, self._size] if name == _INDEX else [self._size, *array.shape[1:]]
            if list(array.shape) != expected or (name in self._ends and array.shape[1:] and name != _INDEX):
                raise GraphError(f"{path}: {name} has shape {list(array.shape)}, expected {expected}, one per edge")
        self._values = {
            name: checked_values(f"{path}: {name}", arrays[name].dtype, arrays[name].shape[1:], dtype)
            for name, dtype in kept.items()
        }
        self._bytes = sum(array.dtype.itemsize * math.prod(array.shape) for array in arrays.values())

    @property
    def path(self) -> Path:
        """See `EdgeReader`."""
        return self._path

    @property
    def values(self) -> Mapping[str, Values]:
        """See `EdgeReader`."""
        return self._values

    def estimate(self) -> int:
        """See `EdgeReader`."""
        return self._size

    def chunks(self, state: Any = None) -> Iterator[Chunk]:
        """See `EdgeReader`."""
        start = state or 0
        size = max(1, self._wanted.piece * self._size // max(1, self._bytes))
        file_size = self._path.stat().st_size
        with opened_archive(self._path) as archive:
            if self._ends == (_INDEX,):
                ends = [MemberRows(archive, _INDEX, flat=True), MemberRows(archive, _INDEX, flat=True)]
                ends[1].skip(self._size)
            else:
                ends = [MemberRows(archive, name) for name in self._ends]
            values = {name: MemberRows(archive, name) for name in self._values}
            for array in (*ends, *values.values()):
                array.skip(start)
            for first in range(start, self._size, size):
                count = min(size, self._size - first)
                found = [ends_of(f"{self._path}: {array.name}", array.take(count), self._wanted) for array in ends]
                held = {name: array.take(count).astype(self._values[name].dtype) for name, array in values.items()}

                def where(k: int, first: int = first) -> str:
                    return f"{self._path}, edge {first + k:,}"

                stop = first + count
                yield Chunk(found[0], found[1], held, where, stop, file_size * stop // max(1, self._size))


@contextlib.contextmanager
def opened_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive; what reading damaged bytes raises meanwhile becomes a `GraphError` that names it."""
    try:
        with named(path), zipfile.ZipFile(path) as archive:
            yield archive
    except (OSError, GraphError):
        raise
    except _DAMAGE as error:
        raise GraphError(f"{path} is no archive of arrays, or is damaged ({error}): get it again") from None


@final
class MemberRows:
    """An array in an archive, from front to back.

    Args:
        archive: opened.
        name: of the array.
        flat: read all its elements as rows.

    Raises:
        GraphError: there is none, or it cannot be read so.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str, *, flat: bool = False) -> None:
        if f"{name}.npy" not in archive.namelist():
            names = [member.removesuffix(".npy") for member in archive.namelist()]
            raise GraphError(f"{archive.filename} has no array {name}: {did_you_mean(name, names)}")
        info = archive.getinfo(f"{name}.npy")
        header = header_of(archive, info)
        if header.by_columns and len(header.shape) > 1:
            raise GraphError(f"{archive.filename}: {name} is stored by columns: save np.ascontiguousarray of it")
        if header.dtype.hasobject:
            raise GraphError(f"{archive.filename}: {name} holds Python objects: save numbers")
        self.name, self.dtype = name, header.dtype
        self.shape = (math.prod(header.shape),) if flat else header.shape
        self._row = header.dtype.itemsize * math.prod(self.shape[1:])
        self._member = archive.open(info)
        self._member.read(header.size)

    def skip(self, count: int) -> None:
        """Passes over rows."""
        left = count * self._row
        while left:
            left -= len(self._read(min(left, 1 << 22)))

    def take(self, count: int) -> np.ndarray:
        """The next rows."""
        return np.frombuffer(self._read(count * self._row), self.dtype).reshape(count, *self.shape[1:])

    def _read(self, size: int) -> bytes:
        found = self._member.read(size)
        if len(found) < size:
            raise EOFError(f"{self.name} ends early")
        return found
