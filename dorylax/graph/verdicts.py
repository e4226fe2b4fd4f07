"""Which arrays of which files have been checked, remembered between runs.

A verdict is a file in `<cache>/verified-1` whose name is the SHA-256 of what was checked: of the file its device, inode,
size and times, of the array its place and checksums. Being there is all it says, so there is nothing in it that could be
damaged, and processes that write the same one do not meet. When an inode changed last is a time that nobody can set: a file
that was changed, replaced or restored under old times has another name, and so has one with the same numbers on another
machine.

Times have a grain. A file could change once more within it after it was checked, and look the same; so what changed only
just before is checked again next time. Nothing here is ever an error: without a verdict an array is checked again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.store.durable import write_json

_LOG = logging.getLogger(__name__)

# Seconds: of file systems in use FAT's times have the coarsest grain, two seconds.
_GRAIN = 3.0
# A few hundred bytes each.
_MOST_FILES = 4096
_MOST_BYTES = 2**24


class State(NamedTuple):
    """What tells a file apart from others, and from itself after a change.

    Attributes:
        device, inode, size: of the file.
        modified, changed: nanoseconds since 1970, of its content and of its inode.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int


def state_of(file: int | str) -> State:
    """Of an open file, or of the one at a path. On network file systems opening it has made that fresh."""
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


def is_known(state: State, what: str) -> bool:
    """Whether this part of the file was found right before."""
    try:
        os.utime(_file(state, what))  # what is in use is dropped last
    except FileNotFoundError:
        return False
    except (OSError, RuntimeError):  # a cache that is read-only can still be read; without a home there is none
        try:
            return _file(state, what).is_file()
        except (OSError, RuntimeError):
            return False
    return True


def remember(state: State, what: str, begun: float, path: str | os.PathLike[str]) -> None:
    """Keeps the verdict that this part of a file is right, unless the file changed only just before that was found.

    Args:
        state: of the file, the same before and after.
        what: which part, and what it was compared with.
        begun: when reading began, in seconds since 1970.
        path: of the file, for people who look.
    """
    since_modified, since_changed = begun - state.modified / 1e9, begun - state.changed / 1e9
    if since_changed < _GRAIN or 0 <= since_modified < _GRAIN:  # `touch` can set the former to any time to come
        return
    try:
        file = _file(state, what)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"schema": 1, "path": os.path.abspath(path), "what": what, "checked": int(time.time())})
        drop_oldest(file, most_files=_MOST_FILES, most_bytes=_MOST_BYTES)
    except (OSError, RuntimeError, ValueError) as error:  # a full disk costs time in the next run, nothing else
        _LOG.info("could not remember that %s was checked: %s", os.fspath(path), error)


def _file(state: State, what: str) -> Path:
    key = hashlib.sha256(json.dumps([*state, what]).encode()).hexdigest()
    return cache_directory() / "verified-1" / key
