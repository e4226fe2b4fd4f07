"""The cache directory: its path, the limit of its folders, and the memory of verified files. It only saves time.

An empty file in `<cache>/verified-1` records that a part of a file was verified. Its name is the SHA-256 of the state
(device, inode, size, times) and of the checksum, so it cannot be out of date, and processes cannot conflict. No program can
set the time of the last change of an inode: a file that was changed, replaced, or restored under old times is verified
again. Times have a resolution, so a file that changed shortly before its verification is verified again next time.
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
from typing import BinaryIO

from dorylax.errors import RunError
from dorylax.graph.mapped import state_of

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


def verified_once(stream: BinaryIO, what: str, is_right: Callable[[], bool]) -> bool:
    """Return whether a part of an open file is right; a part that was right in the same state is not read again.

    Args:
        stream: The file.
        what: Identifies the part and its checksum.
        is_right: Compares the part with its checksum.
    """
    state, begun, record = state_of(stream.fileno()), time.time(), Path()
    with contextlib.suppress(OSError, RuntimeError):  # no home, and so no cache
        key = hashlib.sha256(json.dumps([*state, what]).encode()).hexdigest()
        record = cache_directory() / "verified-1" / key
        if record.is_file():
            with contextlib.suppress(OSError):  # a read-only cache
                os.utime(record)  # `drop_oldest` removes the least recently used
            return True
    start = time.perf_counter()
    if not is_right():
        return False
    _LOG.info("%s: verified in %.2f s", stream.name, time.perf_counter() - start)
    since_modified, since_changed = begun - state.modified / 1e9, begun - state.changed / 1e9
    # `touch` can set a modification in the future.
    is_settled = since_changed >= _RESOLUTION and not 0 <= since_modified < _RESOLUTION
    if record.name and is_settled and state_of(stream.fileno()) == state:
        try:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.touch()
            drop_oldest(record, most_files=_MOST_FILES, most_bytes=_MOST_BYTES)
        except OSError as error:
            _LOG.info("could not remember that %s was verified: %s", stream.name, error)
    return True
