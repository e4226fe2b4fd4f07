"""The cache directory: its path, the limit of its folders, and the memory of verified files. It only saves time.

A file in `<cache>/verified-1` records that a part of a file was verified. Its name is the SHA-256 of the state (device,
inode, size, times) and of the checksum, so its content cannot be out of date, and processes cannot conflict. No program
can set the time of the last change of an inode: a file that was changed, replaced, or restored under old times is
verified again. Times have a resolution, so a file that changed shortly before its verification is verified again next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dorylax.errors import RunError
from dorylax.graph.mapped import State, state_of
from dorylax.store.durable import write_json

_LOG = logging.getLogger(__name__)
_RESOLUTION = 3.0  # seconds; FAT has the coarsest times in use, two seconds
_MOST_FILES, _MOST_BYTES = 4096, 2**24


def cache_directory() -> Path:
    """`$DORYLAX_CACHE`, or else the platform's cache directory, or this user's folder for temporary files without a home.

    Raises a RunError if there is no home, and the folder for temporary files is somebody else's.
    """
    if chosen := os.environ.get("DORYLAX_CACHE"):
        return Path(os.path.expanduser(chosen))
    mac = sys.platform == "darwin"
    if not mac and (chosen := os.environ.get("XDG_CACHE_HOME")):
        return Path(chosen) / "dorylax"
    home = os.path.expanduser("~")
    if home != "~":
        return Path(home, *(("Library", "Caches") if mac else (".cache",)), "dorylax")
    # No $HOME, and no entry in the list of users: a container.
    folder = Path(tempfile.gettempdir()) / f"dorylax-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise RunError(f"there is no home folder for a cache, and {folder} is somebody else's: set DORYLAX_CACHE")
    return folder


def drop_oldest(newest: Path, *, most_files: int, most_bytes: int) -> None:
    """Delete the least recently used files of a folder beyond a limit, but never `newest`; leftovers count as files."""
    others = []
    for path in newest.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process drops files too
            status = path.stat()
            if path != newest:
                others.append((status.st_mtime_ns, path.name, status.st_size))
    files, size = 1, newest.stat().st_size
    for _, name, own in sorted(others, reverse=True):
        files, size = files + 1, size + own
        if files > most_files or size > most_bytes:
            with contextlib.suppress(FileNotFoundError):
                (newest.parent / name).unlink()


def verified_once(descriptor: int, what: str, path: str | os.PathLike[str], is_right: Callable[[], bool]) -> bool:
    """Return whether a part of an open file is right; a part that was right in the same state is not read again.

    Args:
        descriptor: Descriptor of the file.
        what: Identifies the part and its checksum.
        path: Path of the file, for people who read the cache.
        is_right: Compares the part with its checksum.
    """
    state, begun = state_of(descriptor), time.time()
    if _is_known(state, what):
        return True
    start = time.perf_counter()
    if not is_right():
        return False
    _LOG.info("%s: verified in %.2f s", os.fspath(path), time.perf_counter() - start)
    if state_of(descriptor) == state:
        _remember(state, what, begun, path)
    return True


def _is_known(state: State, what: str) -> bool:
    with contextlib.suppress(OSError, RuntimeError):  # no home, and so no cache
        file = _file(state, what)
        with contextlib.suppress(OSError):  # a read-only cache
            os.utime(file)  # `drop_oldest` removes the least recently used
        return file.is_file()
    return False


def _remember(state: State, what: str, begun: float, path: str | os.PathLike[str]) -> None:
    since_modified, since_changed = begun - state.modified / 1e9, begun - state.changed / 1e9
    if since_changed < _RESOLUTION or 0 <= since_modified < _RESOLUTION:  # `touch` can set a modification in the future
        return
    try:
        file = _file(state, what)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"schema": 1, "path": os.path.abspath(path), "what": what, "checked": int(time.time())})
        drop_oldest(file, most_files=_MOST_FILES, most_bytes=_MOST_BYTES)
    except (OSError, RuntimeError, ValueError) as error:
        _LOG.info("could not remember that %s was verified: %s", os.fspath(path), error)


def _file(state: State, what: str) -> Path:
    key = hashlib.sha256(json.dumps([*state, what]).encode()).hexdigest()
    return cache_directory() / "verified-1" / key
