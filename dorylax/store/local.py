"""A storage in a folder of this machine, or of a file system shared by several machines."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO, final

from dorylax.errors import named
from dorylax.store.base import NotThereError, Storage, Writable, check_name
from dorylax.store.durable import leftover_of, make_folder, remove_file, remove_folder, remove_leftovers, write_file


@final
class LocalStorage(Storage):
    """Files below a folder, which is made with the first file and removed with the last one.

    Args:
        folder: Absolute path of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """Path of the folder."""
        return str(self._folder)

    def path(self, name: str) -> Path:
        """Return the path of a file, which need not exist.

        Raises:
            StorageError: The name leads out of the folder.
        """
        return self._folder / check_name(name)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`."""
        return sorted(
            str((place / name).relative_to(self._folder))
            for place, names in self._folders(folder)
            for name in names
            if leftover_of(Path(name)) is None and (place / name).is_file()
        )

    def _folders(self, folder: str) -> list[tuple[Path, list[str]]]:
        """Return each folder below a folder, itself included, with its files; raise if one cannot be read."""

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # others may remove folders meanwhile
                raise error

        top = self.path(folder) if folder else self._folder
        found = []
        with named(top):
            for place, inner, names in os.walk(top, onerror=refuse):
                inner[:] = [name for name in inner if leftover_of(Path(name)) is None]
                found.append((Path(place), names))
        return found

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        path = self.path(name)
        with named(path):
            return path.read_bytes()

    def copy_to(self, name: str, file: BinaryIO) -> None:
        """See `Storage`."""
        path = self.path(name)
        try:
            source = path.open("rb")
        except FileNotFoundError:
            raise NotThereError(f"{path} is not there") from None
        with source:
            shutil.copyfileobj(source, file, 1 << 20)

    def put(self, name: str, content: Writable) -> None:
        """See `Storage`."""
        path = self.path(name)
        with contextlib.ExitStack() as stack:
            if isinstance(content, Path):
                source = stack.enter_context(content.open("rb"))
                content = lambda file: shutil.copyfileobj(source, file, 1 << 20)  # noqa: E731
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
            for place, _ in reversed(self._folders("")):
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
