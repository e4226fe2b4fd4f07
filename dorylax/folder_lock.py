"""Locks on folders, and locked folders for temporary files.

The lock is an `flock` on a file in the folder. The file names the holder, for the message of a refused process. Releasing
the lock removes the file. A killed process leaves the file, but the operating system releases its lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, final

from dorylax.errors import DorylaxError, named
from dorylax.store.durable import make_folder, open_in_place

LOCK = ".lock"
"""Name of the lock file."""

_MARKER = ".dorylax"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_LONGEST = 1 << 12  # bytes read of a lock file


@final
class FolderHeldError(DorylaxError, RuntimeError):
    """Another process, or another part of this process, has locked the folder.

    Attributes:
        folder: Path of the folder.
        holder: Description of the holder, such as "process 4711 on node3, since 2026-11-24 13:40:12", or "another process".
    """

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"{folder} is held by {holder}")
        self.folder = folder
        self.holder = holder


@contextlib.contextmanager
def locked(folder: Path, *, waiting: Callable[[str], object] | None = None) -> Iterator[None]:
    """Keeps every other process from locking the same folder.

    Creates a missing folder, and removes it again if it is empty at the end.

    Args:
        folder: Path of the folder.
        waiting: Called with the description of the current holder (`FolderHeldError.holder`), before an unlimited wait for
            its lock; None to raise instead of waiting.

    Warns:
        UserWarning: The file system of the folder has no locks. The folder stays unlocked.

    Raises:
        FolderHeldError: The folder is locked, and `waiting` is None.
        OSError: The folder cannot be created or written. The error names the folder.
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


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[None]:
    """Locks a folder for temporary files, and removes it at the end if it is empty.

    A marker file records that this function created the folder. It stays as long as there are other files, so that the next
    process can continue with the files of a killed one, or remove them.

    Args:
        folder: Path of the folder, which need not exist. An empty folder is taken over.

    Raises:
        FileExistsError: The path is a file, a symbolic link, or a folder that holds files but no marker.
        FolderHeldError: Another process has locked the folder.
        OSError: The file system refuses.
    """
    _check_ours(folder)
    try:
        with locked(folder):
            try:
                with named(folder):
                    (folder / _MARKER).touch()
                yield
            finally:
                with contextlib.suppress(OSError):
                    if {path.name for path in folder.iterdir()} <= {LOCK, _MARKER}:
                        (folder / _MARKER).unlink()  # under the lock: the next holder creates its own
    finally:
        with contextlib.suppress(OSError):  # it is not empty, or another process has just locked it
            folder.rmdir()


def clear_work_folder(folder: Path, last: Sequence[str] = ()) -> None:
    """Removes the files of a `work_folder`, but not its lock and marker.

    Args:
        folder: Path of the folder; the caller holds its lock.
        last: Names of files to remove after all others, in this order.
    """
    order = {name: place for place, name in enumerate(last)}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, -1)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (LOCK, _MARKER):
            path.unlink()


def _check_ours(folder: Path) -> None:
    """Raises unless `work_folder` may use and clear a folder."""
    if folder.is_symlink():
        found = "a symbolic link"
    elif folder.is_dir():
        # A process that was killed at its start leaves nothing but the lock file.
        names = [path.name for path in folder.iterdir() if path.name != LOCK or not _is_lock_file(path)]
        if not names or _is_regular(folder / _MARKER):
            return
        found = f"a folder with {min(names)}"
    elif folder.exists():
        found = "a file"
    else:
        return
    reason = f"dorylax needs this name for temporary files, but there is {found}: move it away, or give another --out"
    raise FileExistsError(errno.EEXIST, reason, str(folder))


def _is_lock_file(path: Path) -> bool:
    """Whether a file is empty or names a holder, as lock files do. Another process may remove it meanwhile."""
    if not _is_regular(path):
        return not os.path.lexists(path)
    content = b""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        content = file.read(_LONGEST)
    return not content or _Holder.of(content) is not None


def _is_regular(path: Path) -> bool:
    """Whether a path is a file and no symbolic link to one."""
    return path.is_file() and not path.is_symlink()


def _remove(lock: Path) -> None:
    """Remove the lock file before its release, while no other process can lock it; a file that stays is harmless."""
    with contextlib.suppress(OSError):
        lock.unlink()


@contextlib.contextmanager
def _file(folder: Path, waiting: Callable[[str], object] | None) -> Iterator[BinaryIO]:
    """Open and lock the file that currently has the name of the lock, and empty it."""
    while True:
        try:
            # Opening does not truncate the file, which may name the current holder.
            descriptor = open_in_place(folder / LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # the holder has just removed the folder that it created
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
                file.seek(0)  # the position is behind the name of the last holder after a wait
                file.truncate()
                yield file
                return
            # The last holder has just removed this file: open the new file of that name.


@contextlib.contextmanager
def _closed_quietly(file: BinaryIO) -> Iterator[BinaryIO]:
    """Close a file and suppress errors, such as a full disk, which would hide the failure of the command."""
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


@dataclasses.dataclass(frozen=True)
class _Holder:
    """The process that holds a lock."""

    process: int
    host: str
    since: str

    @classmethod
    def this(cls) -> _Holder:
        """Describe this process."""
        now = datetime.datetime.now().astimezone()
        return cls(os.getpid(), socket.gethostname(), now.isoformat(" ", "seconds"))

    def to_line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, content: bytes) -> _Holder | None:
        """The holder that a lock file names; None if the content is of another kind, or only half written."""
        try:
            fields = json.loads(content)
            return cls(int(fields["process"]), str(fields["host"]), str(fields["since"]))
        except (ValueError, KeyError, TypeError):
            return None

    @classmethod
    def words(cls, content: bytes) -> str:
        """The holder that a lock file names, in words."""
        holder = cls.of(content)
        if holder is None:
            return "another process"
        where = "" if holder.host == socket.gethostname() else f" on {holder.host}"
        who = "this process" if not where and holder.process == os.getpid() else f"process {holder.process}{where}"
        return f"{who}, since {holder.since}"
