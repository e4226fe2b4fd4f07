"""Places of stored files: folders of this machine, S3 by its URL, and verified local copies of files in either."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, final

from dorylax.errors import named
from dorylax.store.base import (
    Content,
    Location,
    Storage,
    StorageError,
    Writable,
    check_content,
    check_name,
    parse_place,
)
from dorylax.store.durable import is_temporary, make_folder, remove_file, remove_folder, remove_leftovers, write_file
from dorylax.store.s3 import S3Storage


@final
class LocalStorage(Storage):
    """Files below a folder (an absolute path), which appears with the first file and disappears with the last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder)

    def path(self, name: str) -> Path:
        """See `Storage`."""
        return self.folder / check_name(name)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`."""
        return sorted(
            str((place / name).relative_to(self.folder))
            for place, names in self._folders(folder)
            for name in names
            if not is_temporary(name) and (place / name).is_file()
        )

    def _folders(self, folder: str) -> Iterator[tuple[Path, list[str]]]:
        """Yield each folder below a folder, itself included, with the names of its files."""

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # others may remove folders meanwhile
                raise error

        top = self.path(folder) if folder else self.folder
        with named(top):
            for place, inner, names in os.walk(top, onerror=refuse):
                inner[:] = [name for name in inner if not is_temporary(name)]
                yield Path(place), names

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        path = self.path(name)
        with named(path):
            return path.read_bytes()

    def copy_to(self, name: str, file: BinaryIO) -> None:
        """See `Storage`."""
        with self.path(name).open("rb") as source:
            shutil.copyfileobj(source, file, 1 << 20)

    def put(self, name: str, content: Writable) -> None:
        """See `Storage`."""
        path = self.path(name)
        if isinstance(content, Path):
            with content.open("rb") as source:
                self.put(name, lambda file: shutil.copyfileobj(source, file, 1 << 20))
            return
        make_folder(path.parent)
        write_file(path, content)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        path = self.path(name)
        remove_file(path)
        self._remove_empty(path.parent)

    def clear(self, folder: str = "") -> None:
        """See `Storage`. Running processes keep their temporary files, except in a folder that is deleted."""
        if not folder:
            for place, _ in reversed(list(self._folders(""))):
                remove_leftovers(place)
                with contextlib.suppress(OSError):  # the folder is not empty
                    place.rmdir()
            return
        path = self.path(folder)
        with named(path), contextlib.suppress(FileNotFoundError):
            # Renames it first: a late writer, such as a host of a lost cluster, cannot keep it alive.
            remove_folder(path)
        self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and its parents, up to the place itself, as far as they are empty."""
        with contextlib.suppress(OSError):
            while folder.is_relative_to(self.folder):
                folder.rmdir()
                folder = folder.parent


def open_storage(text: str) -> Storage:
    """Return the storage at a path or below `s3://bucket/prefix`, without any request; errors as of `parse_place`."""
    place = parse_place(text)
    return S3Storage(place) if isinstance(place, Location) else LocalStorage(place)


def local_copies(storage: Storage, stored: str, files: Mapping[str, Content], folder: Path) -> Path:
    """Return a folder with verified copies of files of a stored folder; files of local storages are read in place.

    Any number of processes may share the folder of copies, if all their files of one name have the same content.

    Args:
        storage: The storage.
        stored: Name of the stored folder; "" for the whole storage.
        files: Names in this folder, and their contents.
        folder: Folder for copies; made.

    Raises:
        FileNotFoundError: The storage lacks a file.
        StorageError: A file has other content.
    """
    for name, content in files.items():
        there, path = f"{stored}/{name}" if stored else name, folder / check_name(name)
        if isinstance(storage, LocalStorage):
            check_content(storage.path(there), content, str(storage.path(there)))
            continue
        try:
            check_content(path, content, str(path))
        except (FileNotFoundError, StorageError):  # not copied yet, or damaged since
            make_folder(path.parent)
            remove_leftovers(path.parent)
            storage.fetch(there, path, content)
    return storage.folder / stored if isinstance(storage, LocalStorage) else folder


@contextlib.contextmanager
def verified(storage: Storage, stored: str, files: Mapping[str, Content]) -> Iterator[Path]:
    """Give a folder with verified files: the stored one, or temporary copies; arguments and errors as of `local_copies`."""
    with contextlib.ExitStack() as stack:
        folder = ""
        if not isinstance(storage, LocalStorage):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-copy-"))
        yield local_copies(storage, stored, files, Path(folder))
