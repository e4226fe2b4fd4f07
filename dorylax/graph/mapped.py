"""Memory-mapped arrays: which arrays are, whether their files have changed, and how their pages are given back.

A page of a mapped file stays in memory after a read, and counts as the process' own, until the system needs the memory.
`release` gives pages back earlier.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from dorylax.errors import RunError

_DONT_NEED = getattr(mmap, "MADV_DONTNEED", None)

_mappings: weakref.WeakKeyDictionary[mmap.mmap, tuple[str, State]] = weakref.WeakKeyDictionary()
"""Of archives: each file's path, and its state when it was mapped."""
_SECONDS = 0.01  # between two looks: a disk brings some 20 MB in that time


class State(NamedTuple):
    """Identity of a file and of its content: size in bytes, and last changes of content and inode in ns since 1970."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


def state_of(file: int | str) -> State:
    """Return the state of an open file, or of the file at a path."""
    found = os.stat(file)
    return State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def difference(before: State, now: State) -> str:
    """Describe the change between two states of a file; empty if there is none."""
    if before == now:
        return ""
    if before[:2] != now[:2]:
        return "another file has its name now"
    if before.size != now.size:
        return f"{before.size:,} bytes then, {now.size:,} now"
    if before.modified != now.modified:
        return "it was written to"
    return "only its permissions, owner or names, as by chmod or ln, or it was written to under its old time"


def mapping_of(array: Any) -> mmap.mmap | None:
    """Return the mapping whose memory an array or a view of it shows, or None."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def map_file(
    file: str | os.PathLike[str] | BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0
) -> np.ndarray:
    """Map an array in a file, read-only, and register it for `check_unchanged` and `resident_within`.

    Raises an OSError if the file cannot be read, and a ValueError if it is too short for `shape` from byte `offset` on.
    """
    array = np.memmap(file, dtype, "r", offset, shape)
    mapping = mapping_of(array)
    if mapping is not None and array.filename is not None:
        name = os.fspath(array.filename)
        _mappings[mapping] = name, state_of(name if isinstance(file, str | os.PathLike) else file.fileno())
    return array


def check_unchanged(*arrays: Any) -> None:
    """Compare the files that arrays are mapped from by size, times and inode with those that were loaded.

    A file that is gone counts as unchanged: its pages have no name for a writer. Raises a RunError otherwise.
    """
    for mapping in {mapping_of(array) for array in arrays}:
        if mapping is not None and mapping in _mappings:
            check_state(*_mappings[mapping])


def check_state(path: str | os.PathLike[str], state: State) -> None:
    """Compare the state of a file with an earlier one, as `check_unchanged` does."""
    with contextlib.suppress(FileNotFoundError):
        if how := difference(state, state_of(os.fspath(path))):
            raise changed(path, f" ({how})")


def changed(path: str | os.PathLike[str], how: str = "") -> RunError:
    """The error for a file of a data set that was written to, or replaced, since it was loaded."""
    return RunError(
        f"{os.fspath(path)} has changed since it was loaded{how}, so nothing is saved of what was computed with it: leave "
        "the file alone while it is used, and start again (a run: resume it) if its content is right, or restore it first"
    )


@contextlib.contextmanager
def resident_within(size: int) -> Iterator[None]:
    """Limit the resident bytes of memory-mapped archives to `size`: a thread gives pages back while other threads read.

    A pass in order reads each page once, so it does not become slower. It exceeds the limit by its reads between two
    checks.
    """
    if _DONT_NEED is None or (before := _resident_of_files()) is None:
        yield  # a system that does not say, or takes nothing back before it has to
        return
    done = threading.Event()
    most = before + size

    def watch() -> None:
        while not done.wait(_SECONDS):
            if (_resident_of_files() or 0) > most:
                for mapping in list(_mappings):
                    with contextlib.suppress(ValueError):  # closed meanwhile
                        mapping.madvise(_DONT_NEED)

    thread = threading.Thread(target=watch, name="dorylax-resident", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _resident_of_files() -> int | None:
    """Bytes of mapped files that this process holds, or None on systems without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[2]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return None


def release(*arrays: Any) -> None:
    """Give resident pages of memory-mapped arrays back to the system; the next read brings them in again.

    Arrays in memory and writable mappings stay as they are: private ones would lose their changes.
    """
    if _DONT_NEED is None or not hasattr(mmap.mmap, "madvise"):
        return
    for array in arrays:
        mapping = mapping_of(array)
        if mapping is None or not array.size:
            continue
        with memoryview(mapping) as whole:
            if not whole.readonly:
                continue
            begin = np.frombuffer(whole, np.uint8).ctypes.data
        first, last = (bound - begin for bound in byte_bounds(array))
        first -= first % mmap.PAGESIZE  # the mapping itself begins on a page
        mapping.madvise(_DONT_NEED, first, min(last, len(mapping)) - first)
