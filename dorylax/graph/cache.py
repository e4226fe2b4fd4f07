"""The cache directory: where it is, and how a folder of it stays small. What is in it only saves time."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """`$DORYLAX_CACHE`, or else the platform's cache directory."""
    if chosen := os.environ.get("DORYLAX_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dorylax"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dorylax"


def drop_oldest(newest: Path, *, most_files: int, most_bytes: int) -> None:
    """Deletes what is too much in a folder: what is least recently used goes first, but never `newest`.

    What interrupted processes left half written counts, and goes, too.

    Raises:
        OSError: the file system refuses.
    """
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
