"""Stored files on this machine: where they lie, or in a folder of copies that processes share."""

from __future__ import annotations

from pathlib import Path

from dorylax.store.base import Content, OtherContentError, Storage, check_content
from dorylax.store.durable import make_folder, remove_leftovers
from dorylax.store.local import LocalStorage


def local_copy(storage: Storage, name: str, content: Content, folder: Path) -> Path:
    """Return the path of a verified local copy of a stored file; files of local storages are read in place.

    Args:
        storage: Storage of the file.
        name: Name of the file.
        content: Expected size and SHA-256.
        folder: Folder of copies, created if missing. The name of a copy is its SHA-256, so any number of processes, runs,
            and storages may share the folder. Only leftovers of killed processes are ever removed from it.

    Raises:
        FileNotFoundError: The storage has no such file.
        OtherContentError: The file has other content.
        OSError: The file cannot be read or copied.
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
