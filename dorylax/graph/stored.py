"""Named arrays on disk, read one by one: folders of arrays (`array_folder` writes them), and `.npz` archives.

Archives are those of earlier versions of dorylax, and those of NumPy. Large uncompressed arrays of an archive are
memory-mapped if they are aligned, as earlier versions wrote them. Their checksums are those of zip.
"""

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
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np

from dorylax.aligned import ALIGNMENT, empty
from dorylax.graph.array_names import CLASS_NAMES, SINGLE
from dorylax.graph.arrays import stored_names
from dorylax.graph.cache import verified_once
from dorylax.graph.manifest import MANIFEST, Manifest, file_name
from dorylax.graph.mapped import State, check_state, map_file, state_of
from dorylax.graph.validate import GraphError, check_printable, check_room

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

_AGAIN = "restore it from a copy, or make it again; --no-verify (in Python verify=False) takes it as it is"
_CHECKSUMS = "checksums.json"  # a member of archives of earlier versions
_LOCAL_HEADER = 30  # bytes of a member's own header before its name
_LONGEST_END = 22 + 0xFFFF  # bytes of the end of the directory, with the longest comment
_MANY = 0xFFFF  # stands for any number of members in large archives


def open_arrays(path: str | os.PathLike[str], *, verify: bool = True) -> StoredArrays:
    """Open a folder of arrays or an `.npz` archive.

    `verify` compares arrays with their checksums; memory-mapped ones are compared once per state of the file, compressed
    ones always.

    Raises a FileNotFoundError if there is nothing, and a GraphError for something else or a damaged manifest.
    """
    return _ArrayFolder(path, verify=verify) if os.path.isdir(path) else _Npz(path, verify=verify)


class Place(NamedTuple):
    """Position of an array's elements in an open file.

    Attributes:
        stream: The file.
        offset: Position of the first element in bytes; the elements, of `dtype` and `shape`, are in C order. -1 if they are
            compressed, or in Fortran's order.
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
        return self.offset >= 0 and self.num_bytes >= _LARGE and self.offset % ALIGNMENT == 0

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
    `is_verified` says that arrays and values are verified when they are fetched, and that dorylax wrote them.
    """

    names: tuple[str, ...]
    is_verified = False

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

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of an array. Raises a GraphError that names the array if it is missing or damaged."""
        with self._told(name):
            found = self._locate(name)
            return found.shape, found.dtype

    def fetch(self, name: str, *, map_all: bool = False) -> np.ndarray:
        """Return an array: memory-mapped and read-only if it is large, else in memory.

        `map_all` maps small and unaligned arrays too, which XLA would have to copy.

        Raises a GraphError that names the array if it is missing, damaged, or does not fit in memory.
        """
        with self._told(name):
            place = self._locate(name)
            if isinstance(place, np.ndarray):
                return place
            if place.offset < 0:
                return self._unpack(name)
            if place.is_mappable or (map_all and place.shape and place.num_bytes):
                self._check(name, place)
                return map_file(place.stream, place.dtype, place.shape, place.offset)
            check_room("", place.num_bytes)
            content = empty((place.header + place.num_bytes,), np.uint8)
            if read_at(place.stream, place.offset - place.header, content.data) < len(content):
                raise GraphError(f"ends before its {place.num_bytes:,} bytes: {_AGAIN}")
            if self._verify and zlib.crc32(content.data) != place.crc32:
                raise _damaged(place)
            return content[place.header :].view(place.dtype).reshape(place.shape)

    def maps(self, name: str) -> bool:
        """Whether `fetch` memory-maps an array, without reading it."""
        try:
            place = self._locate(name) if name in self else None
        except (GraphError, *DAMAGE):  # `fetch` reports it
            return False
        return isinstance(place, Place) and place.is_mappable

    def place(self, name: str) -> Place | None:
        """Return the position of a verified array; None if it cannot be read in parts. Raises as `fetch`."""
        with self._told(name):
            place = self._locate(name)
            if isinstance(place, np.ndarray) or place.offset < 0:
                return None
            self._check(name, place)
            return place

    def check_unchanged(self) -> None:
        """Raise a RunError if a file that was opened has been written to or replaced."""
        for path, state in self._states.items():
            check_state(path, state)

    @abc.abstractmethod
    def _locate(self, name: str) -> Place | np.ndarray:
        """Return a value, or open an array."""

    def _unpack(self, name: str) -> np.ndarray:
        """Read an array without an offset."""
        raise NotImplementedError

    def _check(self, name: str, place: Place) -> None:
        what = f"{name} at {place.offset} {place.crc32:08x}"
        if self._verify and not verified_once(place.stream, what, place.is_right):
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


@final
class _Npz(StoredArrays):
    def __init__(self, path: str | os.PathLike[str], *, verify: bool) -> None:
        super().__init__(path, verify=verify)
        with self._files:
            self._stream = self._opened(self._path)
            if self._stream.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise GraphError(f"{path}: not an npz archive but one array, as np.save writes: use np.savez")
            try:
                self._zip = self._files.enter_context(zipfile.ZipFile(self._stream))
                self._check_count()
            except DAMAGE as error:
                reason = "it is another kind of file, or cut off" if isinstance(error, zipfile.BadZipFile) else error
                raise GraphError(f"{path}: not an npz archive ({reason}): np.savez writes one") from error
            self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
            self._members.pop(_CHECKSUMS, None)
            for name in self._members:
                check_printable(f"{path}: the name of the array", name)
            self.names = tuple(self._members)
            self._files = self._files.pop_all()

    def _check_count(self) -> None:
        """Raise BadZipFile if members are missing: a damaged length of one entry may hide the next ones."""
        self._stream.seek(max(0, os.fstat(self._stream.fileno()).st_size - _LONGEST_END))
        tail = self._stream.read()
        (count,) = struct.unpack_from("<H", tail, tail.rfind(b"PK\5\6") + 10)
        if count not in (len(self._zip.infolist()), _MANY):
            raise zipfile.BadZipFile(f"{count} members were written, {len(self._zip.infolist())} are listed")

    def _locate(self, name: str) -> Place:
        info = self._members[name]
        with self._zip.open(info) as member:
            shape, by_columns, dtype = read_header(member)
            size = member.tell()
        declared = size + math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and (declared != info.file_size or min(shape, default=0) < 0):
            raise ValueError(f"its header declares {declared:,} bytes, the archive {info.file_size:,}")
        if name in SINGLE and shape:
            raise GraphError(f"must be a single value, got {dtype} {list(shape)}")
        if info.compress_type != zipfile.ZIP_STORED or by_columns or dtype.hasobject:
            return Place(self._stream, -1, dtype, shape, info.CRC)
        self._stream.seek(info.header_offset)
        lengths = struct.unpack("<HH", self._stream.read(_LOCAL_HEADER)[-4:])
        offset = info.header_offset + _LOCAL_HEADER + sum(lengths) + size
        return Place(self._stream, offset, dtype, shape, info.CRC, size)

    def _unpack(self, name: str) -> np.ndarray:
        check_room("", self._members[name].file_size)
        with self._zip.open(self._members[name]) as member:
            array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
            return array


@final
class _ArrayFolder(StoredArrays):
    def __init__(self, path: str | os.PathLike[str], *, verify: bool) -> None:
        super().__init__(path, verify=verify)
        self._places: dict[str, Place] = {}
        try:
            with self._opened(self._path / MANIFEST) as file:
                self._manifest = Manifest.from_json(file.read())
        except FileNotFoundError:
            raise GraphError(
                f"{self._path} is a folder without {MANIFEST}: give one that dorylax wrote (Dataset.save, dorylax import)"
            ) from None
        except GraphError as error:
            raise GraphError(f"{self._path / MANIFEST} {error}") from error
        self.is_verified = verify
        names = (CLASS_NAMES,) if self._manifest.class_names is not None else ()
        self.names = (*self._manifest.arrays, *self._manifest.values, *names)

    def _locate(self, name: str) -> Place | np.ndarray:
        if name in self._places:
            return self._places[name]
        if (entry := self._manifest.arrays.get(name)) is None:
            values = self._manifest.values
            return np.array(values[name]) if name in values else stored_names(name, self._manifest.class_names)
        path = self._path / file_name(name)
        try:
            stream = self._opened(path)
        except FileNotFoundError:
            raise GraphError(f"is missing: there is no {path.name}: {_AGAIN}") from None
        if read_header(stream) != (entry.shape, False, np.dtype(entry.dtype)):
            raise GraphError(f"is not what {MANIFEST} lists, {entry.dtype} {list(entry.shape)}: {_AGAIN}")
        place = Place(stream, stream.tell(), np.dtype(entry.dtype), entry.shape, int(entry.crc32, 16))
        size = os.fstat(stream.fileno()).st_size
        if size != place.offset + place.num_bytes:
            raise GraphError(f"has {size:,} bytes, expected {place.offset + place.num_bytes:,}: {_AGAIN}")
        self._places[name] = place
        return place


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
    return GraphError(f"is damaged: the content of {name} is not what was written: {_AGAIN}")
