"""Reader of `.npz` archives: those of earlier versions of dorylax, and those of NumPy.

Large uncompressed arrays are memory-mapped if they are aligned, as earlier versions wrote them. The CRC-32 of zip is
compared. No size is believed before memory is taken for it: the list of the archive and the header of an array must agree.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from typing import Any, final

import numpy as np

from dorylax.graph.array_names import SINGLE
from dorylax.graph.room import check_room, gibibytes
from dorylax.graph.stored import DAMAGE, Place, StoredArrays, crc32_of
from dorylax.graph.validate import GraphError, check_printable
from dorylax.graph.verification import verified_once

_ONE_ARRAY = np.lib.format.MAGIC_PREFIX
_CHECKSUMS = "checksums.json"  # a member of archives of earlier versions
_LOCAL_HEADER = 30  # bytes of a member's own header before its name

# Deflate shrinks a thousand zeros to one byte at most. Large regular arrays are rare, and refused above this size.
_MOST_INFLATION = 1032 + 8
_RARE_INFLATION, _RARE_BYTES = 200, 2**30


def open_npz(path: str | os.PathLike[str], *, verify: bool = True) -> StoredArrays:
    """Open an archive.

    Args:
        path: Path of the file.
        verify: Whether to compare memory-mapped arrays with their checksums. Others are always compared.

    Raises:
        FileNotFoundError: There is no such file.
        GraphError: It is no archive, or is damaged.
    """
    return _Npz(path, verify=verify)


@final
class _Npz(StoredArrays):
    """See `StoredArrays`."""

    def __init__(self, path: str | os.PathLike[str], *, verify: bool) -> None:
        super().__init__(path, verify=verify)
        self._held = 0  # bytes of arrays in memory
        with self._files:
            self._stream = self._opened(self._path)
            if self._stream.read(len(_ONE_ARRAY)) == _ONE_ARRAY:
                raise GraphError(f"{path}: not an npz archive but one array, as np.save writes: use np.savez")
            try:
                self._zip = self._files.enter_context(zipfile.ZipFile(self._stream))
            except DAMAGE as error:
                reason = "it is another kind of file, or cut off" if isinstance(error, zipfile.BadZipFile) else error
                raise GraphError(f"{path}: not an npz archive ({reason}): np.savez writes one") from error
            self._members: dict[str, zipfile.ZipInfo] = {}
            try:
                for info in self._zip.infolist():
                    self._zip.open(info).close()  # compares its own header
                    if info.filename.removesuffix(".npy") in self._members:
                        raise ValueError(f"{info.filename} is there twice")
                    self._members[info.filename.removesuffix(".npy")] = info
            except DAMAGE as error:
                raise GraphError(f"{path}: is damaged ({error}): restore it from a copy, or make it again") from error
            self._members.pop(_CHECKSUMS, None)
            for name in self._members:
                check_printable(f"{path}: the name of the array", name)
            self.names = tuple(self._members)
            self._files = self._files.pop_all()

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """See `StoredArrays`."""
        with self._told(name):
            return self._header(name)[:2]

    def is_verified(self, *names: str) -> bool:  # noqa: ARG002
        """See `StoredArrays`; any program may have written the archive."""
        return False

    def _header(self, name: str) -> tuple[tuple[int, ...], np.dtype, bool, int]:
        """Shape, dtype, whether elements are in C order, and the size of the header."""
        info = self._members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("it is compressed in a way that NumPy never uses: np.savez and np.savez_compressed do not")
        if info.file_size > info.compress_size * (_MOST_INFLATION if info.compress_type else 1):
            raise ValueError(f"{info.compress_size:,} bytes cannot hold the {info.file_size:,} that it declares")
        with self._zip.open(info) as member:
            version = np.lib.format.read_magic(member)
            read: Any = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, by_columns, dtype = read(member)
            size = member.tell()
        declared = size + math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and (declared != info.file_size or min(shape, default=0) < 0):
            raise ValueError(f"its header declares {declared:,} bytes, the archive {info.file_size:,}")
        return shape, dtype, not by_columns and not dtype.hasobject, size

    def _place(self, name: str) -> Place | None:
        info = self._members[name]
        shape, dtype, by_rows, size = self._header(name)
        if info.compress_type != zipfile.ZIP_STORED or not by_rows:
            return None
        self._stream.seek(info.header_offset)
        lengths = struct.unpack("<HH", self._stream.read(_LOCAL_HEADER)[-4:])
        return Place(self._stream, info.header_offset + _LOCAL_HEADER + sum(lengths) + size, dtype, shape)

    def _read(self, name: str, place: Place | None) -> np.ndarray:  # noqa: ARG002
        info = self._members[name]
        inflation = info.file_size / max(info.compress_size, 1)
        if info.file_size > _RARE_BYTES and inflation > _RARE_INFLATION:
            raise GraphError(
                f"inflates {inflation:,.0f}-fold, to {gibibytes(info.file_size)}: store it uncompressed (np.savez) if that "
                "is meant"
            )
        self._header(name)
        check_room("with the arrays before it" if self._held else "", self._held + info.file_size)
        self._held += info.file_size
        with self._zip.open(info) as member:
            array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        if name in SINGLE and array.ndim:
            raise GraphError(f"must be a single value, got {array.dtype} {list(array.shape)}")
        return array

    def _check(self, name: str, place: Place) -> None:
        info, descriptor = self._members[name], self._stream.fileno()
        header, what = info.file_size - place.num_bytes, f"{name} at {place.offset} {info.CRC:08x}"
        if self._verify and not verified_once(
            descriptor, what, self._path, lambda: crc32_of(place, header) == info.CRC
        ):
            raise GraphError(
                "is damaged: its content is not what was written: restore the file from a copy, or make it again; "
                "--no-verify (in Python verify=False) takes it as it is"
            )
