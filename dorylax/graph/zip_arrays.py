"""Arrays as members of a zip archive: where each lies, how large it says it is, and whether that can be true.

Nothing here trusts a size before memory is taken for it: the directory of the archive, the header of the member and the
header of the array must agree, members may not share bytes, and no more comes out of a member than it declares.
"""

from __future__ import annotations

import math
import struct
import zipfile
from typing import BinaryIO, NamedTuple

import numpy as np

from dorylax.graph.room import check_room, gibibytes
from dorylax.graph.validate import GraphError

_SIGNATURE = b"PK\3\4"  # of a member's own header
_DESCRIPTOR = 24  # bytes, at most, in which some programs repeat sizes after a member
LOCAL_HEADER = 30
"""Bytes of a member's own header before its name."""

# Deflating makes a thousand zeros one byte, at most. What is that regular is rare; above this size it is refused.
_MOST_INFLATION = 1032 + 8  # and some for members of a few bytes
_RARE_INFLATION, _RARE_BYTES = 200, 2**30


class Header(NamedTuple):
    """What the header of an array says.

    Attributes:
        shape, dtype: of the array.
        by_columns: whether its elements are in Fortran's order.
        version: of the header's format.
        size: bytes of the header itself; the elements follow it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    by_columns: bool
    version: tuple[int, int]
    size: int


def members(archive: zipfile.ZipFile, stream: BinaryIO) -> dict[str, zipfile.ZipInfo]:
    """The members by name, checked against their own headers and against each other.

    Args:
        archive: opened on `stream`.
        stream: the file.

    Raises:
        zipfile.BadZipFile: a member is there twice or not in the list, its own header disagrees, or two share bytes.
        OSError, RuntimeError, struct.error: as reading damaged bytes does.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.filename in found:
            raise zipfile.BadZipFile(f"{info.filename} is there twice")
        archive.open(info).close()  # compares the names
        found[info.filename] = info
    end = 0
    for info in sorted(found.values(), key=lambda info: info.header_offset):
        _check_gap(stream, end, info.header_offset)
        end = start_of(stream, info) + info.compress_size
    _check_gap(stream, end, archive.start_dir)
    return found


def _check_gap(stream: BinaryIO, first: int, end: int) -> None:
    """Passes for bytes between members that hold no member: one that the list of the archive has lost."""
    if end < first:
        raise zipfile.BadZipFile("two arrays share bytes")
    stream.seek(first)
    if _SIGNATURE in stream.read(min(end - first, _DESCRIPTOR + len(_SIGNATURE))):
        raise zipfile.BadZipFile(f"at byte {first:,} begins an array that its list does not name")


def start_of(stream: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin in the file."""
    stream.seek(info.header_offset)
    local = stream.read(LOCAL_HEADER)
    name_length, extra_length = struct.unpack("<HH", local[-4:])
    return info.header_offset + LOCAL_HEADER + int(name_length) + int(extra_length)


def header_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    """The header of an array, of which nothing else is read.

    Raises:
        ValueError: it is none, or declares another size than the archive does.
        zipfile.BadZipFile, zlib.error, EOFError, …: as reading damaged bytes does.
    """
    _check_packing(info)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        one = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(member)
        size = member.tell()
    declared = size + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and (declared != info.file_size or min(shape, default=0) < 0):
        raise ValueError(f"its header declares {declared:,} bytes, the archive {info.file_size:,}")
    return Header(shape, dtype, by_columns, version, size)


def read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, held: int) -> np.ndarray:
    """An array, read whole; its CRC-32 is compared on the way.

    Args:
        archive: opened.
        info: the member.
        held: bytes of other arrays that were read from the archive.

    Raises:
        GraphError: it does not fit in memory, or inflates as no array of a graph does.
        ValueError, zipfile.BadZipFile, …: as `header_of`, or the CRC-32 is wrong.
    """
    header_of(archive, info)
    _check_inflation(info)
    check_room("with the arrays before it" if held else "", held + info.file_size)
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        return array


def read_bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of a member that is no array; its CRC-32 is compared on the way.

    Raises:
        GraphError, ValueError, zipfile.BadZipFile, …: as `read`.
    """
    _check_packing(info)
    _check_inflation(info)
    check_room("", info.file_size)
    return archive.read(info)


def _check_inflation(info: zipfile.ZipInfo) -> None:
    """Refuses a large member that inflates as only made-up ones do.

    Raises:
        GraphError: it does.
    """
    ratio = info.file_size / max(info.compress_size, 1)
    if info.file_size > _RARE_BYTES and ratio > _RARE_INFLATION:
        raise GraphError(
            f"inflates {ratio:,.0f}-fold, to {gibibytes(info.file_size)}: where that is meant, store it uncompressed "
            "(np.savez, Dataset.save_npz)"
        )


def _check_packing(info: zipfile.ZipInfo) -> None:
    """Passes for members that are stored or deflated, and whose sizes can be true."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is compressed in a way that NumPy never uses: write it by np.savez or np.savez_compressed")
    most = 1 if info.compress_type == zipfile.ZIP_STORED else _MOST_INFLATION
    if info.file_size > most * info.compress_size:
        raise ValueError(f"{info.compress_size:,} bytes cannot hold the {info.file_size:,} that it declares")
