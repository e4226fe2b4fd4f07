"""Stored files on this machine: where they lie, or in a folder of copies that processes share."""

from __future__ import annotations

from pathlib import Path

from dorylax.durable import make_folder, remove_leftovers
from dorylax.storage.base import Content, Storage, check_content
from dorylax.storage.errors import OtherContentError
from dorylax.storage.local import LocalStorage


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
        OtherContentError: it holds something else.
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
    except (FileNotFoundError, OtherContentError):  # or damaged since: what is fetched takes its place
        remove_leftovers(folder)
        storage.fetch(name, path, content)
    return path
