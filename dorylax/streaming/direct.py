"""Files that bypass the page cache if the file system allows it (O_DIRECT).

The page cache copies every byte once more, and pages that are never read again evict useful ones. If O_DIRECT is refused
(tmpfs, some network file systems), reads and writes are ordinary, and their pages are dropped immediately.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import final

import numpy as np

BLOCK = 4096
"""Alignment of positions, lengths and addresses, in bytes."""

_DIRECT = getattr(os, "O_DIRECT", 0)
_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)
_HUGE_BYTES = 2 << 20


def up(size: int) -> int:
    """Round up to a multiple of a block."""
    return -(-size // BLOCK) * BLOCK


def anonymous(size: int) -> np.ndarray:
    """Zeros on private pages, uint8 `[size]`: aligned, on huge pages if large, and returned to the system when freed."""
    # Private, unlike Python's default, since shared pages are never huge.
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
        path: Path of the file.
        writes: Whether to create the file, for this process only. Its name is removed immediately, so that the file
            disappears however the process ends.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if writes else os.O_RDONLY
        self._file, self._direct = _open(path, flags)
        if writes:
            path.unlink()

    def state(self) -> os.stat_result:
        """Return the status of the open file, even if its path now names another file."""
        return os.fstat(self._file)

    def read(self, buffer: np.ndarray, position: int, size: int) -> np.ndarray:
        """Read bytes `position:position + size` into a view of the buffer.

        Args:
            buffer: uint8, from `anonymous`, with room for `room(size)` bytes.
            position: Position in the file.
            size: Number of bytes.

        Raises:
            OSError: The bytes cannot be read, or the file is shorter.
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
        """Write whole blocks.

        Args:
            buffer: uint8, from `anonymous`; its length is a multiple of a block.
            position: Position in the file, a multiple of a block.

        Raises:
            OSError: The blocks cannot be written, for example because the disk is full.
        """
        done = 0
        while done < len(buffer):
            done += os.pwritev(self._file, [buffer[done:].data], position + done)
        if not self._direct:
            os.fdatasync(self._file)  # the system drops only clean pages
            _give_up(self._file, position, len(buffer))

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def room(size: int) -> int:
    """Return the buffer size that `DirectFile.read` needs for so many bytes at any position."""
    return up(size) + BLOCK


def _open(path: Path, flags: int) -> tuple[int, bool]:
    flags |= getattr(os, "O_CLOEXEC", 0)
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, 0o600), True
        except OSError:
            # EINVAL if the file system lacks O_DIRECT; any other error occurs again below.
            if flags & os.O_CREAT:
                path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600), False


def _give_up(file: int, position: int, size: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, position, size, os.POSIX_FADV_DONTNEED)
