"""One process at a time in a folder: a lock that ends with its process, however that ends, and says who holds it.

The lock is one of the operating system (`flock`) on a file in the folder, which holds what a refused process says about
its holder. It is gone from the folder when it is released; a killed process leaves the file, which locks nobody out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, final

from dorylax.durable import make_folder, named
from dorylax.errors import DorylaxError

LOCK = ".lock"
"""The file's name."""

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_LONGEST = 1 << 12  # bytes of what a holder says


@final
class FolderHeldError(DorylaxError, RuntimeError):
    """Another process, or another part of this one, has the folder.

    Attributes:
        folder: it.
        holder: who has it, as words: "process 4711 on node3, since 2026-11-24 13:40:12"; "another process" if unknown.
    """

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"{folder} is held by {holder}")
        self.folder = folder
        self.holder = holder


@contextlib.contextmanager
def locked(folder: Path, *, waiting: Callable[[str], object] | None = None) -> Iterator[None]:
    """Keeps every other process from locking the same folder.

    A folder that does not exist is made, and removed again if nothing has come into it.

    Args:
        folder: to be locked.
        waiting: is told who has it (`FolderHeldError.holder`) before that one is waited for, however long it takes; None:
            nobody is waited for.

    Warns:
        UserWarning: the folder's file system has no locks; then nothing is locked.

    Raises:
        FolderHeldError: somebody else has it, and `waiting` is None.
        OSError: the folder cannot be made or written; it names the folder.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        with contextlib.ExitStack() as stack:
            with named(folder):
                make_folder(folder)
                file = stack.enter_context(_file(folder, waiting))
                stack.callback(_remove, folder / LOCK)
                file.write(_Holder.this().to_line())
                file.flush()
            yield
    finally:
        with contextlib.suppress(OSError):  # one is not empty
            for one in made:
                one.rmdir()


def _remove(lock: Path) -> None:
    """Before it is released: nobody can have locked this file since. If it cannot go, it locks nobody out."""
    with contextlib.suppress(OSError):
        lock.unlink()


@contextlib.contextmanager
def _file(folder: Path, waiting: Callable[[str], object] | None) -> Iterator[BinaryIO]:
    """The lock's file, empty, locked, and the one that has the name."""
    while True:
        try:
            # Not truncated when it is opened: it may say who holds the lock.
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # a holder that had made the folder has just removed it
            make_folder(folder)
            continue
        with _closed_quietly(os.fdopen(descriptor, "r+b")) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _Holder.words(file.read(_LONGEST))
                if waiting is None:
                    raise FolderHeldError(folder, holder) from None
                waiting(holder)
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
                file.seek(0)  # past what the holder said, if it was waited for
                file.truncate()
                yield file
                return
            # Removed by a holder that has just let go: whoever comes now makes a new one.


@contextlib.contextmanager
def _closed_quietly(file: BinaryIO) -> Iterator[BinaryIO]:
    """The lock is released although closing fails, as on a full disk; that must not hide why a command failed."""
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


@dataclasses.dataclass(frozen=True)
class _Holder:
    """Who has a lock."""

    process: int
    host: str
    since: str

    @classmethod
    def this(cls) -> _Holder:
        """This process."""
        now = datetime.datetime.now().astimezone()
        return cls(os.getpid(), socket.gethostname(), now.isoformat(" ", "seconds"))

    def to_line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def words(cls, content: bytes) -> str:
        """Of what a file holds, which another process may just be writing."""
        try:
            fields = json.loads(content)
            holder = cls(int(fields["process"]), str(fields["host"]), str(fields["since"]))
        except (ValueError, KeyError, TypeError):
            return "another process"
        where = "" if holder.host == socket.gethostname() else f" on {holder.host}"
        who = "this process" if not where and holder.process == os.getpid() else f"process {holder.process}{where}"
        return f"{who}, since {holder.since}"
