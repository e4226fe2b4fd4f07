"""Temporary folders of runs on a node, which do not outlast their process for long, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "dorylax-run-"
_MARKER = ".dorylax"  # only folders with this file are removed with their content


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end.

    Removes those of processes that were killed as well. A folder is held by a lock on itself, which ends with its process.

    Raises:
        OSError: the file system refuses.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _held(left):  # else it is in use, or another user's
            if (left / _MARKER).is_file():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.rmdir()  # of a process that was killed before it wrote the marker; fails for a foreign folder
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        while True:
            try:
                stack.enter_context(_held(folder))
            except (BlockingIOError, FileNotFoundError):  # somebody has just taken it for one that was left
                folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
                continue
            except OSError:  # there are no locks, so nobody removes it either
                pass
            break
        try:
            (folder / _MARKER).touch()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Holds a folder.

    Raises:
        BlockingIOError: somebody else does.
        OSError: it is gone, or the file system refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.stat()  # its last holder may have removed it
        yield
    finally:
        os.close(descriptor)
