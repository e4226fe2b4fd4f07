"""Stored files on this machine: where they lie, or in a folder of copies that processes share."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from dorylax.durable import leftover_of, make_folder
from dorylax.storage.base import Content, Storage, check_content
from dorylax.storage.errors import StorageError
from dorylax.storage.local import LocalStorage

_ABANDONED_SECONDS = 24 * 3600.0
"""Since the last byte of a copy that nobody has finished; whoever fetches one writes to it all the time."""


def local_copy(storage: Storage, name: str, content: Content, folder: Path) -> Path:
    """A stored file, checked, as a file of this machine that nobody changes.

    Args:
        storage: where it is; one of this machine is read where it lies.
        name: of the file.
        content: what it must hold.
        folder: of copies, which is made where it is missing. A copy is called by its SHA-256, so that any number of
            processes, runs and storages may share the folder; nothing is ever dropped from it but what killed processes
            have left.

    Raises:
        FileNotFoundError: there is none.
        StorageError: it holds something else.
        OSError: it cannot be read, or copied.
    """
    if isinstance(storage, LocalStorage):
        path = storage.path(name)
        check_content(path, content, str(path))
        return path
    make_folder(folder)
    path = folder / content.sha256
    try:
        check_content(path, content, str(path))
    except (FileNotFoundError, StorageError):  # or damaged since: what is fetched takes its place
        _drop_abandoned(folder)
        storage.fetch(name, path, content)
    return path


def _drop_abandoned(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process drops them too
            if leftover_of(path) is not None and time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
