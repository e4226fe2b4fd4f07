"""The storage at a place that a user wrote, and verified local copies of stored files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dorylax.store.base import Content, Location, Storage, check_content, has_content, parse_place
from dorylax.store.durable import make_folder, remove_leftovers
from dorylax.store.local import LocalStorage
from dorylax.store.s3 import S3Storage


def open_storage(text: str) -> Storage:
    """Return the storage at a path or below `s3://bucket/prefix`, without any request; errors as of `parse_place`."""
    place = parse_place(text)
    return S3Storage(place) if isinstance(place, Location) else LocalStorage(place)


def local_copy(storage: Storage, name: str, content: Content, folder: Path) -> Path:
    """Return the path of a verified local copy of a stored file; files of local storages are read in place.

    The name of a copy is its SHA-256, so any number of processes, runs, and storages may share the folder of copies.

    Raises:
        FileNotFoundError: The storage has no such file.
        StorageError: The file has other content.
    """
    if isinstance(storage, LocalStorage):
        path = storage.path(name)
        check_content(path, content, str(path))
        return path
    make_folder(folder)
    path = folder / content.sha256
    if not has_content(path, content):  # or damaged since: the download replaces it
        remove_leftovers(folder)
        storage.fetch(name, path, content)
    return path


@contextlib.contextmanager
def verified(storage: Storage, name: str, content: Content) -> Iterator[Path]:
    """Give the path of a stored file with verified content: in place, or a temporary copy; errors as of `local_copy`."""
    if isinstance(storage, LocalStorage):
        yield local_copy(storage, name, content, Path())
        return
    with tempfile.TemporaryDirectory(prefix="dorylax-copy-") as folder:
        yield local_copy(storage, name, content, Path(folder))
