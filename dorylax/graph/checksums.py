"""Checksums of an archive's arrays, block by block: written with the archive, compared when an array is mapped.

    checksums.json   {"format": "dorylax-checksums", "version": 1, "hash": "crc32", "block_bytes": 4194304,
                      "arrays": {NAME: {"bytes": N, "blocks": [CRC-32 of each block of the member's bytes]}}}

CRC-32 finds every error of a few bits and all but one of 4·10⁹ others. It is the hash of zip itself, so one function checks
archives with and without such a list, and the fastest that Python comes with (docs/data.md has numbers). It finds damage,
not forgery.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, NamedTuple, final

from dorylax.machine import cores

MEMBER = "checksums.json"
BLOCK = 1 << 22
"""Bytes of a block; the last one may be shorter."""

_FORMAT, _VERSION, _HASH = "dorylax-checksums", 1, "crc32"
_MOST_THREADS = 8  # as many CRC-32 as memory, or a fast disk, has bytes for


class Checksums(NamedTuple):
    """Of one array with its header.

    Attributes:
        size: bytes.
        blocks: the CRC-32 of each block.
        block_bytes: bytes of a block.
    """

    size: int
    blocks: tuple[int, ...]
    block_bytes: int

    def span(self, block: int) -> tuple[int, int]:
        """The first byte of a block, and the one after its last."""
        return block * self.block_bytes, min((block + 1) * self.block_bytes, self.size)

    @property
    def digest(self) -> str:
        """Of all that is known here."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()


@final
class Summing:
    """Passes on what is written to the next `write`, and forms its checksums."""

    def __init__(self, write: Callable[[bytes | memoryview], object]) -> None:
        self._write = write
        self._size = self._crc = 0
        self._blocks: list[int] = []

    def write(self, data: bytes | memoryview) -> None:
        """Takes bytes."""
        self._write(data)
        left = memoryview(data)
        while left:
            room = BLOCK - self._size % BLOCK
            self._crc = zlib.crc32(left[:room], self._crc)
            self._size += len(left[:room])
            left = left[room:]
            if self._size % BLOCK == 0:
                self._end_block()

    def checksums(self) -> Checksums:
        """Of all that was written; nothing may follow."""
        if self._size % BLOCK:
            self._end_block()
        return Checksums(self._size, tuple(self._blocks), BLOCK)

    def _end_block(self) -> None:
        self._blocks.append(self._crc)
        self._crc = 0


def to_json(arrays: Mapping[str, Checksums]) -> bytes:
    """The content of `MEMBER`."""
    listed = {name: {"bytes": sums.size, "blocks": sums.blocks} for name, sums in arrays.items()}
    content = {"format": _FORMAT, "version": _VERSION, "hash": _HASH, "block_bytes": BLOCK, "arrays": listed}
    return json.dumps(content, separators=(",", ":")).encode()


def from_json(content: bytes) -> dict[str, Checksums] | None:
    """The checksums of each array; None where the list is of another version.

    Raises:
        ValueError: it is no such list.
    """
    try:
        found = json.loads(content)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']!r}")
        if (found["version"], found["hash"]) != (_VERSION, _HASH):
            return None
        arrays = {
            name: Checksums(one["bytes"], tuple(one["blocks"]), found["block_bytes"])
            for name, one in found["arrays"].items()
        }
        for name, sums in arrays.items():
            if not 1 <= sums.block_bytes <= 2**30 or len(sums.blocks) != -(-sums.size // sums.block_bytes):
                raise ValueError(f"blocks of {name}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{MEMBER} is no list of checksums ({error})") from error
    return arrays


def wrong_blocks(stream: BinaryIO, first: int, sums: Checksums) -> list[int]:
    """Which blocks of a file differ from their checksums, ascending.

    A buffer for each thread goes over the file, so that nothing of it stays in the process' memory.

    Args:
        stream: the file.
        first: where its block 0 begins.
        sums: the checksums.

    Raises:
        OSError: the file cannot be read.
    """
    threads = min(cores(), _MOST_THREADS, len(sums.blocks))
    descriptor = stream.fileno()

    def wrong(thread: int) -> list[int]:
        buffer = memoryview(bytearray(min(BLOCK, sums.block_bytes)))
        found = []
        for block in range(thread, len(sums.blocks), threads):
            begin, end = sums.span(block)
            crc = 0
            for at in range(begin, end, BLOCK):
                part = buffer[: end - at]
                read = _read(descriptor, first + at, part)
                crc = zlib.crc32(part[:read], crc)
            if crc != sums.blocks[block]:
                found.append(block)
        return found

    with ThreadPoolExecutor(max(threads, 1)) as pool:
        return sorted(block for found in pool.map(wrong, range(threads)) for block in found)


def _read(descriptor: int, first: int, part: memoryview) -> int:
    """Fills `part` without moving the file's position; returns how much there was."""
    read = 0
    while read < len(part) and (more := os.preadv(descriptor, [part[read:]], first + read)):
        read += more
    return read


def told(blocks: Sequence[int], sums: Checksums, first: int) -> str:
    """Which bytes of a file are wrong, for a message."""
    begin, end = sums.span(blocks[0])
    which = f"block {blocks[0] + 1:,} of {len(sums.blocks):,}"
    others = f", and {len(blocks) - 1:,} after it" if len(blocks) > 1 else ""
    return f"bytes {first + begin:,} … {first + end - 1:,} of the file ({which}{others}) are not what was written"
