"""The cache directory: its path, and the limit of its folders. Its files only save time."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from dorylax.errors import RunError


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
    if home == "~":  # no $HOME, and no entry in the list of users: a container
        return _temporary_home()
    return Path(home, *(("Library", "Caches") if mac else (".cache",)), "dorylax")


def _temporary_home() -> Path:
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
