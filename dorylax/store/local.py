"""A storage in a folder of this machine, or of a file system shared by several machines."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, final

from dorylax.errors import named
from dorylax.store.base import Storage, Writable, check_name
from dorylax.store.durable import is_temporary, make_folder, remove_file, remove_folder, remove_leftovers, write_file


@final
class LocalStorage(Storage):
    """Files below a folder (an absolute path), which appears with the first file and disappears with the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = str(folder)

    def path(self, name: str) -> Path:
        """Return the path of a file, which need not exist; raise StorageError if the name leads out of the folder."""
        return self._folder / check_name(name)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`."""
        return sorted(
            str((place / name).relative_to(self._folder))
            for place, names in self._folders(folder)
            for name in names
            if not is_temporary(name) and (place / name).is_file()
        )

    def _folders(self, folder: str) -> Iterator[tuple[Path, list[str]]]:
        """Yield each folder below a folder, itself included, with the names of its files."""

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # others may remove folders meanwhile
                raise error

        top = self.path(folder) if folder else self._folder
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
                with contextlib.suppress(OSError):  # it is not empty
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
            while folder.is_relative_to(self._folder):
                folder.rmdir()
                folder = folder.parent
