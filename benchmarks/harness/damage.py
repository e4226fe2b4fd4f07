"""Damage to files, seeded, and undone afterwards: bits, ends cut off, blocks that are zero, exchanged or another file's."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

_BLOCK = 4096
Damage = Callable[[bytearray, random.Random], None]


def flip(content: bytearray, draw: random.Random) -> None:
    """One bit, anywhere."""
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def flip_at_the_ends(content: bytearray, draw: random.Random) -> None:
    """One bit of the first or the last KiB: headers and lists are there."""
    near = min(1024, len(content))
    content[draw.choice((0, len(content) - near)) + draw.randrange(near)] ^= 1 << draw.randrange(8)


def cut(content: bytearray, draw: random.Random) -> None:
    """The end, of any length."""
    del content[draw.randrange(len(content)) :]


def zero(content: bytearray, draw: random.Random) -> None:
    """A block of 4 KiB, or what is left of one."""
    first = draw.randrange(0, len(content), _BLOCK)
    content[first : first + _BLOCK] = bytes(len(content[first : first + _BLOCK]))


def scramble(content: bytearray, draw: random.Random) -> None:
    """A block, as another file's would be."""
    first = draw.randrange(0, len(content), _BLOCK)
    content[first : first + _BLOCK] = draw.randbytes(len(content[first : first + _BLOCK]))


def swap(content: bytearray, draw: random.Random) -> None:
    """Two whole blocks, each in the other's place; the halves of a file of less than two."""
    blocks = len(content) // _BLOCK
    size, (a, b) = (_BLOCK, draw.sample(range(blocks), 2)) if blocks > 1 else (len(content) // 2, (0, 1))
    first, second = slice(a * size, (a + 1) * size), slice(b * size, (b + 1) * size)
    content[first], content[second] = content[second], content[first]


KINDS: dict[str, Damage] = {
    "a flipped bit": flip,
    "a flipped bit of headers": flip_at_the_ends,
    "cut off": cut,
    "a block of zeros": zero,
    "a block of another file": scramble,
    "two blocks exchanged": swap,
}


@contextlib.contextmanager
def damaged(path: Path, whole: bytes, damage: Damage, draw: random.Random) -> Iterator[None]:
    """A file with damage, in place and with its old times; afterwards it is whole again."""
    times = path.stat()
    content = bytearray(whole)
    damage(content, draw)
    _overwrite(path, content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        yield
    finally:
        _overwrite(path, whole)


def _overwrite(path: Path, content: bytes | bytearray) -> None:
    mode = "r+b" if path.exists() else "wb"  # what found the damage may have deleted the file
    with path.open(mode) as file:
        file.write(content)
        file.truncate()
