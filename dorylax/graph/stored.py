"""Named arrays on disk, read one by one: the interface that folders (`array_folder`) and archives (`npz`) share."""

from __future__ import annotations

import abc
import contextlib
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dorylax.aligned import ALIGNMENT, empty
from dorylax.graph.cache import verified_once
from dorylax.graph.mapped import State, check_state, map_file, state_of
from dorylax.graph.validate import GraphError, check_room

_LARGE = 1 << 22  # bytes; smaller arrays are copied into memory
PIECE = 1 << 22
"""Bytes per step of a checksum."""

NPY_DAMAGE = (
    *(EOFError, MemoryError, OSError, ValueError, ArithmeticError, LookupError, SyntaxError),
    *(struct.error, tokenize.TokenError),
)
"""Errors of NumPy for bytes that are no array."""

DAMAGE = (*NPY_DAMAGE, zipfile.BadZipFile, zlib.error, RuntimeError)
"""The same for arrays in archives."""

AGAIN = "restore it from a copy, or make it again; --no-verify (in Python verify=False) takes it as it is"
"""Remedy for damaged files."""


class Place(NamedTuple):
    """Position of an array's elements in an open file.

    Attributes:
        stream: The file.
        offset: Position of the first element in bytes; the elements, of `dtype` and `shape`, are in C order.
        crc32: CRC-32 of the elements and of the `header` bytes before them.
    """

    stream: BinaryIO
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    crc32: int
    header: int = 0

    @property
    def num_bytes(self) -> int:
        """Size of the elements in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_mappable(self) -> bool:
        """Whether the array is large, and lies so that XLA uses it in place."""
        return self.num_bytes >= _LARGE and self.offset % ALIGNMENT == 0

    def is_right(self) -> bool:
        """Whether the elements have their checksum, read piece by piece."""
        crc, buffer = 0, memoryview(bytearray(PIECE))
        end = self.offset + self.num_bytes
        for at in range(self.offset - self.header, end, PIECE):
            part = buffer[: end - at]
            crc = zlib.crc32(part[: read_at(self.stream, at, part)], crc)
        return crc == self.crc32


class StoredArrays(abc.ABC):
    """Arrays on disk under their `names`; a context in which their files stay open.

    A `GraphError` that leaves the context gets the path in front. `verify` compares arrays with their checksums.
    """

    names: tuple[str, ...]

    def __init__(self, path: str | os.PathLike[str], *, verify: bool) -> None:
        self._path, self._verify = Path(path), verify
        self._files = contextlib.ExitStack()
        self._states: dict[Path, State] = {}

    def __enter__(self) -> StoredArrays:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._files.close()
        if isinstance(error, GraphError):
            raise GraphError(f"{self._path}: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def require(self, *names: str) -> None:
        """Raise a `GraphError` that lists the missing ones of `names`."""
        absent = [name for name in names if name not in self]
        if (absent or "indptr" in names) and {"format", "shape", "data"} <= set(self.names):
            raise GraphError(
                "is a matrix of scipy.sparse.save_npz: Graph.from_scipy(scipy.sparse.load_npz(path)) takes it, and so does "
                "dorylax import"
            )
        if absent:
            raise GraphError(f"has no array {' and no '.join(absent)}; it has {', '.join(self.names) or 'none'}")

    def fetch(self, name: str) -> np.ndarray:
        """Return an array: memory-mapped and read-only if it is large, else in memory.

        Raises a GraphError that names the array if it is missing, damaged, or does not fit in memory.
        """
        with self._told(name):
            place = self._place(name)
            if place is None:
                return self._read(name)
            if place.is_mappable:
                self._check(name, place)
                return map_file(place.stream, place.dtype, place.shape, place.offset)
            check_room("", place.num_bytes)
            array, header = empty(place.shape, place.dtype), bytearray(place.header)
            content = array.reshape(-1).view(np.uint8).data
            read = read_at(place.stream, place.offset - place.header, memoryview(header))
            if read + read_at(place.stream, place.offset, content) < len(header) + len(content):
                raise GraphError(f"ends before its {len(content):,} bytes: {AGAIN}")
            if self._verify and zlib.crc32(content, zlib.crc32(header)) != place.crc32:
                raise _damaged(place)
            return array

    def maps(self, name: str) -> bool:
        """Whether `fetch` memory-maps an array, without reading it."""
        try:
            place = self._place(name) if name in self else None
        except (GraphError, *DAMAGE):  # `fetch` reports it
            return False
        return place is not None and place.is_mappable

    def place(self, name: str) -> Place | None:
        """Return the position of a verified array; None if it is compressed or in Fortran's order. Raises as `fetch`."""
        with self._told(name):
            place = self._place(name)
            if place is not None:
                self._check(name, place)
            return place

    def check_unchanged(self) -> None:
        """Raise a RunError if a file that was opened has been written to or replaced."""
        for path, state in self._states.items():
            check_state(path, state)

    @abc.abstractmethod
    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of an array. Raises a `GraphError` if it is missing or damaged."""

    def is_verified(self, *names: str) -> bool:  # noqa: ARG002
        """Whether arrays and values are verified when they are fetched, and dorylax wrote them."""
        return False

    @abc.abstractmethod
    def _place(self, name: str) -> Place | None:
        """Open an array whose elements can be read in parts."""

    @abc.abstractmethod
    def _read(self, name: str) -> np.ndarray:
        """Read an array without a place, or a value."""

    def _check(self, name: str, place: Place) -> None:
        what = f"{name} at {place.offset} {place.crc32:08x}"
        if self._verify and not verified_once(place.stream.fileno(), what, place.stream.name, place.is_right):
            raise _damaged(place)

    def _opened(self, path: Path) -> BinaryIO:
        stream = self._files.enter_context(path.open("rb"))
        self._states.setdefault(path, state_of(stream.fileno()))
        return stream

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Put the name of an array in front of errors."""
        self.require(name)
        try:
            yield
        except GraphError as error:
            raise GraphError(f"array {name} {error}") from error
        except DAMAGE as error:
            reason = "it holds Python objects: save numbers" if "Object arrays" in str(error) else error
            raise GraphError(f"array {name} cannot be read ({reason})") from error


def read_at(stream: BinaryIO, offset: int, buffer: memoryview) -> int:
    """Fill a buffer without moving the position of the file; return the number of bytes that there are."""
    read = 0
    while read < len(buffer) and (more := os.preadv(stream.fileno(), [buffer[read:]], offset + read)):
        read += more
    return read


def read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of a `.npy` file: shape, whether elements are in Fortran's order, and dtype. Raises `NPY_DAMAGE`."""
    old = np.lib.format.read_magic(stream) == (1, 0)
    read: Any = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype] = read(stream)
    return found


def _damaged(place: Place) -> GraphError:
    name = Path(place.stream.name).name
    return GraphError(f"is damaged: the content of {name} is not what was written: {AGAIN}")
