"""States of files, and the memory of verified ones between runs.

A file in `<cache>/verified-1` records that a part of a file was verified. Its name is the SHA-256 of the state (device,
inode, size, times) and of the checksum, so its content cannot be out of date, and processes cannot conflict. No program
can set the time of the last change of an inode: a file that was changed, replaced, or restored under old times is
verified again.

Times have a resolution: a file that changed shortly before its verification could change again unnoticed, so it is
verified again next time. Errors of the cache cost time only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.store.durable import write_json

_LOG = logging.getLogger(__name__)

_RESOLUTION = 3.0  # seconds; FAT has the coarsest times in use, two seconds
_MOST_FILES, _MOST_BYTES = 4096, 2**24


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
    try:
        file = _file(state, what)
        try:
            os.utime(file)  # `drop_oldest` removes the least recently used
        except FileNotFoundError:
            return False
        except OSError:  # a read-only cache
            return file.is_file()
    except (OSError, RuntimeError):  # no home, and so no cache
        return False
    return True


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
