"""Locks on folders.

The lock is an `flock` on a file in the folder. The file names the holder, for the message of a refused process. Releasing
the lock removes the file. A killed process leaves the file, but the operating system releases its lock.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dorylax.errors import RunError, named
from dorylax.store.durable import make_folder, open_in_place

LOCK = ".lock"
"""Name of the lock file."""

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_LONGEST = 1 << 12  # bytes read of a lock file


@contextlib.contextmanager
def locked(folder: Path, *, waiting: Callable[[str], object] | None = None) -> Iterator[None]:
    """Keep every other process, and other parts of this one, from locking the same folder.

    A missing folder is made, and removed again if it is empty at the end.

    Args:
        folder: Path of the folder.
        waiting: Called with a description of the current holder, such as "process 4711 on node3, since 2026-11-24
            13:40:12", before an unlimited wait for its lock. It may raise to give up. None raises RunError.

    Warns:
        UserWarning: The file system of the folder lacks locks. The folder stays unlocked.

    Raises:
        RunError: The folder is locked, and `waiting` is None.
        OSError: The folder cannot be created or written. The error names the folder.
    """

    def refuse(holder: str) -> None:
        raise RunError(f"{folder} is held by {holder}")

    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        with contextlib.ExitStack() as stack:
            with named(folder):
                make_folder(folder)
                file = stack.enter_context(_file(folder, waiting or refuse))
                stack.callback(_remove, folder / LOCK)
                file.write(_this_process())
                file.flush()
            yield
    finally:
        with contextlib.suppress(OSError):  # one is not empty
            for one in made:
                one.rmdir()


def _remove(lock: Path) -> None:
    """Remove the lock file before its release, while no other process can lock it; a file that stays is harmless."""
    with contextlib.suppress(OSError):
        lock.unlink()


@contextlib.contextmanager
def _file(folder: Path, waiting: Callable[[str], object]) -> Iterator[BinaryIO]:
    """Open and lock the file that currently has the name of the lock, and empty it."""
    while True:
        try:
            # Opening does not truncate the file, which may name the current holder.
            descriptor = open_in_place(folder / LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # the holder has just removed the folder that it created
            make_folder(folder)
            continue
        with contextlib.ExitStack() as stack:
            file = os.fdopen(descriptor, "r+b")
            stack.callback(_close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting(_described(file.read(_LONGEST)))
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                warnings.warn(
                    f"{folder} cannot be locked ({error.strerror}): see to it that no other process writes there",
                    stacklevel=6,
                )
            try:
                current = os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat())
            except FileNotFoundError:
                current = False
            if current:
                file.seek(0)  # the position is behind the name of the last holder after a wait
                file.truncate()
                yield file
                return
            # The last holder has just removed this file: open the new file of that name.


def _close(file: BinaryIO) -> None:
    """Close a file and suppress errors, such as a full disk, which would hide the failure of the command."""
    with contextlib.suppress(OSError):
        file.close()


def _this_process() -> bytes:
    since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}).encode() + b"\n"


def _described(content: bytes) -> str:
    """Describe the holder that a lock file names; the content may be foreign, or only half written."""
    try:
        fields = json.loads(content)
        process, host, since = int(fields["process"]), str(fields["host"]), str(fields["since"])
    except (ValueError, KeyError, TypeError):
        return "another process"
    here = host == socket.gethostname()
    who = "this process" if here and process == os.getpid() else f"process {process}{'' if here else f' on {host}'}"
    return f"{who}, since {since}"
