"""Writing an archive array by array, or piece by piece: the only writer of the layout that `dorylax.graph.npz` reads.

Members are stored as they are, each on a multiple of 64 bytes, and checksums of all of them come last. What an array takes
is known from its type and shape, so several can be open at once and grow side by side.
"""

from __future__ import annotations

import contextlib
import io
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from dorylax.graph import checksums
from dorylax.graph.stream.whole_crc import whole_crc
from dorylax.graph.zip_arrays import LOCAL_HEADER
from dorylax.store.durable import arriving_file

ALIGNMENT = 64
"""Bytes, on a multiple of which the bytes of each member begin."""

_PADDING_FIELD = 0xD935  # a number that zip tools use for padding and skip
_ZIP64_FIELD = 1
_LIMIT = 2**32 - 1  # a size that is said elsewhere: in the field of zip64
_VERSION = 45  # of zip64
_UNIX, _MODE = 3, 0o600 << 16
_UTF8 = 0x800
_DATE = 33  # 1 January 1980, the first there is: the same arrays give the same file
_PIECE = 1 << 22  # bytes that are summed while they are in a cache, then written


@contextlib.contextmanager
def new_archive(path: Path) -> Iterator[ArchiveWriter]:
    """Writes an archive that readers see whole or not at all. What killed processes left of one is removed.

    Args:
        path: of the file, in place of one that may be there; its folder must be there.

    Raises:
        OSError: the file system refuses (a full disk, say); it names `path`.
        ValueError: an array was not written whole.
        Exception: what is done meanwhile raises; then nothing is left.
    """
    with arriving_file(path) as file:
        archive = ArchiveWriter(file)
        yield archive
        archive.close()


@final
class ArrayWriter:
    """One array of an archive, which takes its rows in order, any number at once."""

    def __init__(self, file: BinaryIO, name: str, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._file, self._name, self._dtype, self._shape = file, name, dtype, shape
        header = io.BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        self._at = start
        self._sums = checksums.Summing(self._put)
        self._sums.write(header.getvalue())
        self.end = self._at + math.prod(shape) * dtype.itemsize
        """The byte after its last."""

    def write(self, rows: np.ndarray) -> None:
        """Adds rows: `[n, …]` of the array's own type; of an array without axes the whole.

        Raises:
            ValueError: they are of another type or shape, or too many.
            OSError: the file system refuses.
        """
        if rows.dtype != self._dtype or rows.shape[1:] != self._shape[1:] or rows.ndim != len(self._shape):
            raise ValueError(
                f"{self._name} is {self._dtype} {list(self._shape)}, got rows of {rows.dtype} {list(rows.shape)}"
            )
        if rows.nbytes > self.end - self._at:
            raise ValueError(f"{self._name} has {list(self._shape)} elements, got more")
        left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        while left:
            self._sums.write(left[:_PIECE])
            left = left[_PIECE:]

    def finish(self) -> checksums.Checksums:
        """Those of all that was written.

        Raises:
            ValueError: rows are missing.
        """
        if self._at != self.end:
            raise ValueError(f"{self._name} {list(self._shape)} lacks its last {self.end - self._at:,} bytes")
        return self._sums.checksums()

    def _put(self, data: bytes | memoryview) -> None:
        self._file.seek(self._at)
        self._file.write(data)
        self._at += len(data)


@final
class ArchiveWriter:
    """An archive that is being written.

    Args:
        file: a new one, open for writing, at its beginning.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0
        self._arrays: dict[str, tuple[int, bytes, ArrayWriter]] = {}  # where each begins, its padding

    def add(self, name: str, array: np.ndarray) -> None:
        """Writes an array.

        Raises:
            ValueError: as `open`.
            OSError: the file system refuses.
        """
        self.open(name, array.dtype, array.shape).write(array)

    def open(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayWriter:
        """Makes room for an array, whose rows can come now or later, while others are open.

        Args:
            name: of the array.
            dtype: of its elements.
            shape: of all of it.

        Raises:
            ValueError: there is one of that name, or it is of Python objects.
        """
        if name in self._arrays:
            raise ValueError(f"there is an array {name} already")
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be saved when allow_pickle=False")
        member = f"{name}.npy".encode()
        start = self._end + len(_local_header(member, 0, 0, b""))
        padding = -(start + 4) % ALIGNMENT
        extra = struct.pack("<HH", _PADDING_FIELD, padding) + bytes(padding)
        array = ArrayWriter(self._file, name, start + len(extra), dtype, shape)
        self._arrays[name] = self._end, extra, array
        self._end = array.end
        return array

    def close(self) -> None:
        """Writes what says where the arrays are; the file itself stays open.

        Raises:
            ValueError: an array is not whole.
            OSError: the file system refuses.
        """
        directory, sums = b"", {}
        for name, (at, extra, array) in self._arrays.items():
            found = sums[name] = array.finish()
            directory += self._header(f"{name}.npy", at, whole_crc(found), found.size, extra)
        content = checksums.to_json(sums)
        directory += self._header(checksums.MEMBER, self._end, zlib.crc32(content), len(content), b"")
        self._file.write(content)
        self._file.write(directory)
        start = self._file.tell() - len(directory)
        self._file.write(_end(len(self._arrays) + 1, len(directory), start))

    def _header(self, member: str, at: int, crc: int, size: int, extra: bytes) -> bytes:
        """Writes the header of a member, and returns its entry in the directory."""
        name = member.encode()
        self._file.seek(at)
        self._file.write(_local_header(name, crc, size, extra))
        return _entry(name, crc, size, extra, at)


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else _UTF8


def _local_header(name: bytes, crc: int, size: int, extra: bytes) -> bytes:
    """Of a member, before its bytes (APPNOTE.TXT 4.3.7); sizes are in the field of zip64: every header is as long."""
    extra += struct.pack("<HHQQ", _ZIP64_FIELD, 16, size, size)
    fixed = struct.pack(
        "<4s5H3L2H", b"PK\3\4", _VERSION, _flags(name), 0, 0, _DATE, crc, _LIMIT, _LIMIT, len(name), len(extra)
    )
    assert len(fixed) == LOCAL_HEADER
    return fixed + name + extra


def _entry(name: bytes, crc: int, size: int, extra: bytes, at: int) -> bytes:
    """Of a member in the directory at the end (4.3.12); only what is too large for 32 bits is in the field of zip64."""
    large = [size, size] if size >= _LIMIT else []
    large += [at] if at >= _LIMIT else []
    if large:
        extra = struct.pack(f"<HH{len(large)}Q", _ZIP64_FIELD, 8 * len(large), *large) + extra
    said = min(size, _LIMIT)
    fixed = struct.pack("<4sBB5H3L", b"PK\1\2", _VERSION, _UNIX, _VERSION, _flags(name), 0, 0, _DATE, crc, said, said)
    rest = struct.pack("<5H2L", len(name), len(extra), 0, 0, 0, _MODE, min(at, _LIMIT))
    return fixed + rest + name + extra


def _end(count: int, size: int, start: int) -> bytes:
    """The records after the directory (4.3.14 to 4.3.16)."""
    records = b""
    if count >= 2**16 - 1 or size >= _LIMIT or start >= _LIMIT:
        records += struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, _VERSION, _VERSION, 0, 0, count, count, size, start)
        records += struct.pack("<4sLQL", b"PK\6\7", 0, start + size, 1)
    said = min(count, 2**16 - 1)
    return records + struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, said, said, min(size, _LIMIT), min(start, _LIMIT), 0)
