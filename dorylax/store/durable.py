"""Atomic writes: a reader, or a restart after a crash, sees the old content or the new, never a part.

Each write goes to a temporary name next to the target, is flushed to disk, and is renamed. If a step fails, the old content
stays and the temporary name is removed. Only a killed process, or a disk that refuses everything, leaves a temporary name;
the next write of the same target removes it. (If the last step fails, which puts the new name on disk, the new content is
in place.)

All functions raise OSError if the file system refuses. The error names the target.
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
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dorylax.errors import RunError, named

_TEMPORARY = re.compile(r"\.(.+)\.dorylax-[0-9a-f]{8}")
_ABANDONED_SECONDS = 7 * 86400
"""Age at which a temporary file counts as abandoned on a file system without locks."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <linux/fcntl.h>, <linux/fs.h>
# Kernels, file systems, and a name that another process has just moved away.
_CANNOT_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT}


def temporary_path(path: Path) -> Path:
    """Return a free temporary name next to `path`: several processes may write the same file."""
    return path.with_name(f".{path.name}.dorylax-{secrets.token_hex(4)}")


def temporary_target(name: str) -> str | None:
    """Return the name of the file or folder that a temporary name (`temporary_path`) stands for; None for other names."""
    found = _TEMPORARY.fullmatch(name)
    return found[1] if found else None


def is_temporary(name: str) -> bool:
    """Whether the name of a file or folder is a temporary one."""
    return temporary_target(name) is not None


def make_folder(path: Path) -> None:
    """Make a folder and its parents so that they survive a crash. An existing folder stays as it is."""
    with named(path):
        made = [one for one in path.parents if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        # Always the parent of `path`: a killed process may have made the folder without this step.
        for one in (path, *made):
            _sync(one.parent)


def write_file(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Write or replace a file in an existing folder: text (UTF-8), bytes, or a function that writes into an open file."""
    with arriving_file(path) as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write strict JSON as `write_file` does; raise ValueError for NaN or infinity."""
    write_file(path, json_text(fields, "utf-8") + "\n")


def json_text(fields: Mapping[str, Any], encoding: str) -> str:
    """Return strict JSON, in ASCII if an encoding lacks one of the characters; raise ValueError for NaN or infinity."""
    text = json.dumps(fields, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # names of files that are not UTF-8, or an ASCII terminal
        return json.dumps(fields, indent=2, allow_nan=False)
    return text


@contextlib.contextmanager
def arriving_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file next to `path`, which it replaces at the end; an error in the body removes the new file."""
    temporary = temporary_path(path)
    with named(path, temporary), contextlib.ExitStack() as held:
        remove_leftovers(path.parent, path.name.__eq__)
        try:
            while True:
                # Not `tempfile`, whose files only their owner can read: the mode follows the user's umask.
                with temporary.open("xb") as file:
                    if _hold(temporary, held):
                        yield file
                        break
            move_file(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def move_file(source: Path, path: Path) -> None:
    """Flush a complete file to disk, then rename it to `path` in the same folder, which it replaces."""
    with named(path):
        _sync(source)
        os.replace(source, path)
        _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, so that no crash brings it back."""
    with named(path), contextlib.suppress(FileNotFoundError):
        path.unlink()
        _sync(path.parent)


def sync_file(path: Path) -> None:
    """Flush a file and its name to disk."""
    with named(path):
        _sync(path)
        _sync(path.parent)


def open_in_place(path: Path, flags: int) -> int:
    """Open a file that is changed in place, as `os.open`; refuse a symbolic link, which may lead to a foreign file."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path.name} is a symbolic link: remove that link", str(path)) from None
        raise


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Write or replace a folder; `fill` writes the files into a new empty folder.

    Old and new exchange their names in one step. If the system cannot exchange names, replacing takes two renames. Between
    them no folder has the name, and a process that is killed there leaves the old one as `old` in a temporary folder.
    """
    with temporary_folder(path) as beside:
        new, old = beside / "new", beside / "old"
        with named(path, new):
            new.mkdir()
            fill(new)
            for entry in (new, *new.rglob("*")):
                _sync(entry)
        with named(path):
            while not _take_place(new, path, old):
                # Another process has just put its own folder there; replace that too.
                shutil.rmtree(old, ignore_errors=True)
            _sync(path.parent)
        remove_leftovers(path.parent, path.name.__eq__)  # now: one of them may hold the only copy of the old folder


@contextlib.contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """Make a folder for the temporary files of a long computation of `path`; remove those of killed processes first.

    Raises:
        RunError: Another process computes the same path.
    """
    make_folder(path.parent)
    for other in map(path.parent.joinpath, os.listdir(path.parent)):
        # A killed `write_folder` may have left the only copy of the old folder.
        abandoned = temporary_target(other.name) == path.name and not (other / "old").exists() and other.is_dir()
        if abandoned and _is_held(other):
            raise RunError(f"{path} is being written by another process: wait for it, or give another --out")
    with temporary_folder(path) as folder:
        yield folder


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make a folder next to `path` for this user alone, and remove it at the end."""
    folder = temporary_path(path)
    with contextlib.ExitStack() as held:
        with named(path):
            folder.mkdir(0o700)
            while not _hold(folder, held):
                folder.mkdir(0o700)
        try:
            yield folder
        finally:
            _discard(folder)


def remove_folder(path: Path) -> None:
    """Remove a folder so that no crash brings it back. A removal that stops half-way leaves no folder of this name."""
    doomed = temporary_path(path)
    os.replace(path, doomed)
    try:
        with named(path):
            _sync(path.parent)
    finally:
        _discard(doomed)


def _discard(folder: Path) -> None:
    """Remove a temporary folder; retry once if the disk fails."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: Path, of: Callable[[str], object] = bool) -> None:
    """Remove temporary files of killed processes in a folder, as far as possible; running processes keep theirs.

    On a file system without `flock`, files that have not changed for a week are removed.

    Args:
        folder: The folder, which need not exist.
        of: Whether to remove the temporary files of a target of this name.
    """
    with contextlib.suppress(OSError):  # a folder may be writable but not readable
        for name in os.listdir(folder):
            if of(temporary_target(name) or ""):
                with contextlib.suppress(OSError):
                    _is_held(folder / name)


def _hold(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock a new file or folder, which `remove_leftovers` then keeps until `held` ends; return False if it came first."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        held.callback(os.close, descriptor)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
    except OSError:  # one that opens no folders
        return True


def _is_held(path: Path) -> bool:
    """Return whether a running process holds a temporary file or folder; remove it otherwise."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            if time.time() - max(one.lstat().st_mtime for one in (path, *path.rglob("*"))) < _ABANDONED_SECONDS:
                return False
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        return False
    finally:
        os.close(descriptor)


def _take_place(new: Path, path: Path, old: Path) -> bool:
    """Rename `new` to `path` and keep the replaced folder as `old`; return False if another process came first.

    If names cannot be exchanged, no folder has the name for a moment, and a process that is killed then leaves it so.
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
    """Exchange the names of two folders in one step; return False, with nothing changed, if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # in Linux's C libraries
    except AttributeError:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _CANNOT_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), str(other))


def _sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to disk. Some systems do not flush names."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # A folder may be writable but not readable, and some file systems sync no folders (squashfs, some of FUSE).
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL) or not path.is_dir():
            raise
