"""Reader of `.npz` archives: those of earlier versions of dorylax, and those of NumPy.

Large uncompressed arrays are memory-mapped if they are aligned, as earlier versions wrote them. The checksum is that of zip.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from typing import final

import numpy as np

from dorylax.graph.array_names import SINGLE
from dorylax.graph.stored import DAMAGE, Place, StoredArrays, read_header
from dorylax.graph.validate import GraphError, check_printable, check_room

_CHECKSUMS = "checksums.json"  # a member of archives of earlier versions
_LOCAL_HEADER = 30  # bytes of a member's own header before its name
_LONGEST_END = 22 + 0xFFFF  # bytes of the end of the directory, with the longest comment
_MANY = 0xFFFF  # stands for any number of members in large archives


def open_npz(path: str | os.PathLike[str], *, verify: bool = True) -> StoredArrays:
    """Open an archive; `verify` compares uncompressed arrays with their checksums, others always are.

    Raises a FileNotFoundError if there is no such file, and a GraphError if it is no archive or damaged.
    """
    return _Npz(path, verify=verify)


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

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """See `StoredArrays`."""
        with self._told(name):
            shape, _, dtype, _ = self._header(name)
            return shape, dtype

    def _header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        info = self._members[name]
        with self._zip.open(info) as member:
            shape, by_columns, dtype = read_header(member)
            size = member.tell()
        declared = size + math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and (declared != info.file_size or min(shape, default=0) < 0):
            raise ValueError(f"its header declares {declared:,} bytes, the archive {info.file_size:,}")
        if name in SINGLE and shape:
            raise GraphError(f"must be a single value, got {dtype} {list(shape)}")
        return shape, by_columns, dtype, size

    def _place(self, name: str) -> Place | None:
        info = self._members[name]
        shape, by_columns, dtype, size = self._header(name)
        if info.compress_type != zipfile.ZIP_STORED or by_columns or dtype.hasobject:
            return None
        self._stream.seek(info.header_offset)
        lengths = struct.unpack("<HH", self._stream.read(_LOCAL_HEADER)[-4:])
        offset = info.header_offset + _LOCAL_HEADER + sum(lengths) + size
        return Place(self._stream, offset, dtype, shape, info.CRC, size)

    def _read(self, name: str) -> np.ndarray:
        check_room("", self._members[name].file_size)
        with self._zip.open(self._members[name]) as member:
            array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
            return array
