"""A folder of this machine, or one that it shares with others, as a storage."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import final

from dorylax.errors import named
from dorylax.store.base import Content, StorageError, check_content, check_name, content_of
from dorylax.store.durable import arriving_file, leftover_of, make_folder, remove_file, write_file


@final
class LocalStorage:
    """Files below a folder, which is made when the first one is stored.

    Args:
        folder: an absolute path.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """The folder."""
        return str(self._folder)

    def path(self, name: str) -> Path:
        """Of a file, whether it is there or not.

        Raises:
            StorageError: it is no name.
        """
        return self._folder / check_name(name)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`."""
        top = self.path(folder) if folder else self._folder
        with named(top):
            found = [path.relative_to(self._folder) for path in top.rglob("*") if path.is_file()]
        return sorted(str(path) for path in found if not any(leftover_of(Path(part)) for part in path.parts))

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        return self.path(name).read_bytes()

    def fetch(self, name: str, path: Path, content: Content) -> None:
        """See `Storage`."""
        source = self.path(name)
        with source.open("rb") as file, arriving_file(path) as part:
            shutil.copyfileobj(file, part, 1 << 20)
            part.flush()
            check_content(Path(part.name), content, str(source))

    def put(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        path = self.path(name)
        make_folder(path.parent)
        write_file(path, content)

    def put_file(self, name: str, path: Path) -> Content:
        """See `Storage`."""
        target = self.path(name)
        make_folder(target.parent)
        content = content_of(path)
        with path.open("rb") as file, arriving_file(target) as part:
            shutil.copyfileobj(file, part, 1 << 20)
            part.flush()
            if content_of(Path(part.name)) != content:
                raise StorageError(f"{path} changed while it was copied to {target}: run again when nobody writes it")
        return content

    def delete(self, name: str) -> None:
        """See `Storage`. Folders that are empty then go too."""
        path = self.path(name)
        remove_file(path)
        with contextlib.suppress(OSError):  # the first that is not empty, or not there
            for folder in path.relative_to(self._folder).parents[:-1]:
                (self._folder / folder).rmdir()

    def close(self) -> None:
        """See `Storage`."""
