"""Files and folders that come into being whole: a reader, or a crash, sees the old content or the new, never a part.

Everything is written beside its place, flushed to disk and renamed. Where that fails, the old content stays and nothing
else is left; only a process that is killed, or a disk that refuses everything, leaves something behind, under a name that
`leftover_of` knows. (If the last step fails, which puts the new name on disk, the new content is there already.)
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dorylax.errors import DorylaxError

_LEFTOVER = re.compile(r"\.(.+)\.(?!\d{8}$)[0-9a-f]{8}")  # digits alone are a date: .config.yaml.20261127

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <linux/fcntl.h>, <linux/fs.h>
# Kernels, file systems, and a name that another process has just moved away.
_CANNOT_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT}


def make_folder(path: Path) -> None:
    """Makes a folder that outlasts a crash, and those above it; one that is there stays as it is.

    Raises:
        OSError: the file system refuses, or there is a file; it names `path`.
    """
    with named(path):
        made = [one for one in path.parents if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        # That of `path` always: a process that was killed may have made it, and not come to this.
        for one in (path, *made):
            _sync(one.parent)


def write_file(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Writes a file, in place of one that may be there.

    Args:
        path: of the file; its folder must be there.
        content: text (UTF-8), bytes, or what writes them into an open file.

    Raises:
        OSError: the file system refuses (a full disk, say); it names `path`.
        Exception: what `content` raises.
    """
    temporary = _beside(path)
    with named(path):
        try:
            # Not tempfile's, which are for their owner alone: the mode is that of any file that the user makes.
            with temporary.open("xb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())  # or a crash could leave the new name on empty blocks
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync(path.parent)


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """`write_file` of strict JSON.

    Raises:
        ValueError: a value that JSON does not know (NaN, infinity).
        OSError: as `write_file`.
    """
    write_file(path, json.dumps(fields, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Writes a folder, in place of one that may be there.

    The two exchange their names at once. Where the system cannot do that, replacing takes two renames: between them there is
    neither folder under the name, and a process that is killed there leaves the old one in its leftover, as `old`.

    Args:
        path: of the folder; the one that it lies in must be there.
        fill: writes the files into a new empty folder.

    Raises:
        OSError: the file system refuses; it names `path`, or the file in it.
        Exception: what `fill` raises.
    """
    beside = _beside(path)
    new, old = beside / "new", beside / "old"
    try:
        with named(path):
            beside.mkdir()
            new.mkdir()
        with named(path, new):
            fill(new)
            for entry in (new, *new.rglob("*")):
                _sync(entry)
        with named(path):
            while not _take_place(new, path, old):
                # Another process has put its own there meanwhile, which is replaced in turn.
                shutil.rmtree(old, ignore_errors=True)
            _sync(path.parent)
    finally:
        _discard(beside)


def move_file(source: Path, path: Path) -> None:
    """Gives a complete file its name, in place of one that may be there, once its content is on disk.

    Args:
        source: of the file; in the folder of `path`.
        path: the name.

    Raises:
        OSError: the file system refuses; it names `path`.
    """
    with named(path):
        _sync(source)
        os.replace(source, path)
        _sync(path.parent)


@contextlib.contextmanager
def arriving(path: Path) -> Iterator[Path]:
    """Gives a free name beside a path, for what writes files by name; what is there at the end comes to `path`, at once.

    Args:
        path: of the file, in place of one that may be there; its folder must be there.

    Raises:
        OSError: the file system refuses; it names `path`.
        Exception: what is done meanwhile raises; then nothing is left.
    """
    temporary = _beside(path)
    try:
        yield temporary
        move_file(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def arriving_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file beside a path, which comes to `path` at the end; leftovers of killed processes go first.

    For large files: a leftover could be all that a disk has room for. One that another process is still writing stays.

    Args:
        path: of the file, in place of one that may be there; its folder must be there.

    Raises:
        OSError: the file system refuses; it names `path`.
        Exception: what is done meanwhile raises; then nothing is left.
    """
    with named(path), contextlib.ExitStack() as held:
        _remove_leftovers(path)
        with arriving(path) as temporary, _locked_new(temporary, held) as file:
            yield file


def _locked_new(path: Path, held: contextlib.ExitStack) -> BinaryIO:
    """Makes a file that `_remove_leftovers` lets be until `held` ends, even if it is closed before."""
    while True:
        file = path.open("xb")
        held.callback(os.close, os.dup(file.fileno()))  # shares the lock
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # another process has taken it for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    with contextlib.suppress(PermissionError):  # one may write into folders where one may not look
        for one in path.parent.iterdir():
            if leftover_of(one) == path.name:
                with contextlib.suppress(OSError), one.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where it is being written
                    one.unlink()


def sync_file(path: Path) -> None:
    """Puts on disk what was appended to a file.

    Raises:
        OSError: the file system refuses; it names `path`.
    """
    with named(path):
        _sync(path)
        _sync(path.parent)


def remove_file(path: Path) -> None:
    """Removes a file so that no crash brings it back; one that is not there is none to remove.

    Raises:
        OSError: the file system refuses; it names `path`.
    """
    with named(path), contextlib.suppress(FileNotFoundError):
        path.unlink()
        _sync(path.parent)


def _take_place(new: Path, path: Path, old: Path) -> bool:
    """Gives a folder its name, so that whoever had it is in the folder beside; False where another process was between.

    Where names cannot be exchanged there is neither folder for a moment, and a process that is killed then leaves it so.
    """
    if path.exists():
        if _exchange(new, path):
            return True
        with contextlib.suppress(FileNotFoundError):  # the other one has just moved it
            os.replace(path, old)
    try:
        os.replace(new, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        if old.exists():
            os.replace(old, path)
        raise
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Gives two folders each other's names, at once; False where this cannot be done here, and nothing has changed.

    Raises:
        OSError: the file system refuses; it names `other`.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # of Linux's C libraries
    except AttributeError:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _CANNOT_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), str(other))


def remove_folder(path: Path) -> None:
    """Removes a folder so that no crash brings it back. A removal that stops half-way leaves nothing that looks like it.

    Raises:
        OSError: the file system refuses; the folder is still whole.
    """
    doomed = _beside(path)
    os.replace(path, doomed)
    try:
        with named(path):
            _sync(path.parent)
    finally:
        _discard(doomed)


def leftover_of(path: Path) -> str | None:
    """The name of the file or folder that this was to become when its process was killed; None where it is no leftover."""
    found = _LEFTOVER.fullmatch(path.name)
    return found[1] if found else None


def _discard(folder: Path) -> None:
    """Removes a folder that nobody misses; a disk that fails once is asked again."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def _beside(path: Path) -> Path:
    """A free name next to `path`: processes may write the same file at once."""
    return path.with_name(f".{path.name}.{secrets.choice('abcdef')}{secrets.token_hex(4)[1:]}")


def _sync(path: Path) -> None:
    """Puts a file's content, or the names in a folder, on disk; the names where the system lets us."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # One may write into folders where one may not look, and some file systems sync no folders (squashfs, some of FUSE).
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL) or not path.is_dir():
            raise


@contextlib.contextmanager
def named(path: Path, new: Path | None = None) -> Iterator[None]:
    """Lets errors name the file that the user knows: of one in `new` that where it is to come in `path`, else `path`.

    Raises:
        OSError: as what is done raises it; one of writing or closing has no name by itself.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, DorylaxError):  # it says already what it is about
            raise
        if error.errno is None:  # NumPy's, which are a text alone: "100 requested and 36 written"
            raise OSError(errno.EIO, str(error), str(path)) from error
        if new is not None and isinstance(error.filename, str):
            if not Path(error.filename).is_relative_to(new):  # something that is read
                raise
            path /= Path(error.filename).relative_to(new)
        raise OSError(error.errno, error.strerror, str(path)) from error
