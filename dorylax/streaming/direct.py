"""Files that are read and written past the page cache, where the file system lets them be (O_DIRECT).

Through the cache every byte is copied once more, and pages that nobody reads again push out those that somebody does. Where
O_DIRECT is refused (tmpfs, some network file systems), reads and writes are ordinary, and their pages are given up at once.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import final

import numpy as np

BLOCK = 4096
"""Bytes, of which positions, lengths and addresses are multiples."""

_DIRECT = getattr(os, "O_DIRECT", 0)
_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)
_HUGE_BYTES = 2 << 20


def up(size: int) -> int:
    """The next multiple of a block."""
    return -(-size // BLOCK) * BLOCK


def anonymous(size: int) -> np.ndarray:
    """Zeros on pages of their own, uint8 `[size]`: aligned, on huge pages where it is large, and given back when it goes."""
    # Private, which is not Python's default: shared pages are never huge ones.
    memory = mmap.mmap(-1, max(BLOCK, up(size)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGE is not None and size >= _HUGE_BYTES:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(_HUGE)
    array: np.ndarray = np.frombuffer(memory, np.uint8)[:size]
    return array


@final
class DirectFile:
    """An open file.

    Args:
        path: of the file.
        writes: whether it is to be made, and is this process's alone: its name is gone at once, so that nothing is left of
            it, whatever ends the process.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if writes else os.O_RDONLY
        self._file, self._direct = _open(path, flags)
        if writes:
            path.unlink()

    def state(self) -> os.stat_result:
        """Of the file that is open, whatever its name means by now."""
        return os.fstat(self._file)

    def read(self, buffer: np.ndarray, position: int, size: int) -> np.ndarray:
        """Bytes `position:position + size`, a view of the buffer.

        Args:
            buffer: uint8, of `anonymous`, with room for `room(size)` bytes.
            position: in the file.
            size: how many.

        Raises:
            OSError: they cannot be read, or the file ends before.
        """
        first = position - position % BLOCK
        whole = up(position + size) - first
        done = 0
        while done < position - first + size:
            got = os.preadv(self._file, [buffer[done:whole].data], first + done)
            if got <= 0:
                raise OSError(f"{self.path} ends at byte {first + done}, and {position + size} were expected")
            done += got
        if not self._direct:
            _give_up(self._file, first, whole)
        return buffer[position - first : position - first + size]

    def write(self, buffer: np.ndarray, position: int) -> None:
        """Writes whole blocks.

        Args:
            buffer: uint8, of `anonymous`, a multiple of a block long.
            position: a multiple of a block.

        Raises:
            OSError: they cannot be written: the disk is full.
        """
        done = 0
        while done < len(buffer):
            done += os.pwritev(self._file, [buffer[done:].data], position + done)
        if not self._direct:
            os.fdatasync(self._file)  # only clean pages can be given up
            _give_up(self._file, position, len(buffer))

    def close(self) -> None:
        """Closes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def room(size: int) -> int:
    """How long a buffer must be for `DirectFile.read` of so many bytes, wherever they lie."""
    return up(size) + BLOCK


def _open(path: Path, flags: int) -> tuple[int, bool]:
    flags |= getattr(os, "O_CLOEXEC", 0)
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, 0o600), True
        except OSError:
            # EINVAL where the file system has no such thing, and what else is wrong is wrong again.
            if flags & os.O_CREAT:
                path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600), False


def _give_up(file: int, position: int, size: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, position, size, os.POSIX_FADV_DONTNEED)
