"""Zip archives that no zip program writes: sizes that are lies, members inside each other, and a thousand bytes for one."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14
_CHUNK = 1 << 24


class Member(NamedTuple):
    """A member as its header and the archive's list declare it.

    Attributes:
        name: of the member.
        content: its bytes in the file.
        size: that it declares.
        method: of compression.
        crc: that it declares.
        place: where the list says that it begins; None: where it does.
        listed_as: its name in the list; None: the same.
    """

    name: str
    content: bytes
    size: int
    method: int = STORED
    crc: int = 0
    place: int | None = None
    listed_as: str | None = None


def write(path: Path, members: Sequence[Member]) -> None:
    """Writes an archive of these members; sizes in 64 bits."""
    listed = b""
    with path.open("wb") as file:
        for one in members:
            name = one.name.encode()
            place = file.tell() if one.place is None else one.place
            sizes = struct.pack("<QQ", one.size, len(one.content))
            fixed = struct.pack("<HHHHHLLL", 45, 0, one.method, 0, 33, one.crc, 0xFFFFFFFF, 0xFFFFFFFF)
            file.write(b"PK\3\4" + fixed + struct.pack("<HH", len(name), 20) + name)
            file.write(struct.pack("<HH", 1, 16) + sizes + one.content)
            name = (one.listed_as or one.name).encode()
            extra = struct.pack("<HH", 1, 24) + sizes + struct.pack("<Q", place)
            listed += (
                b"PK\1\2"
                + struct.pack("<H", 45)
                + fixed
                + struct.pack("<HHHHHLL", len(name), 28, 0, 0, 0, 0, 0xFFFFFFFF)
            )
            listed += name + extra
        begin = file.tell()
        file.write(listed)
        file.write(b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, len(members), len(members), len(listed), begin, 0))


def array(name: str, values: Any) -> Member:
    """An honest member."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(values), allow_pickle=False)
    content = stream.getvalue()
    return Member(f"{name}.npy", content, len(content), crc=zlib.crc32(content))


def header(shape: tuple[int, ...], dtype: str = "<f4", text: str | None = None) -> bytes:
    """The header of an array, of any shape, or of any text."""
    text = text or f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    line = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(line)) + line


def deflated_zeros(start: bytes, size: int) -> bytes:
    """`start` and then `size` zeros (a multiple of 16 MiB), deflated."""
    pack = zlib.compressobj(9, wbits=-15)
    first = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    one = pack.compress(bytes(_CHUNK)) + pack.flush(zlib.Z_FULL_FLUSH)  # the same each time: nothing before it is used
    return first + one * (size // _CHUNK) + pack.flush(zlib.Z_FINISH)
