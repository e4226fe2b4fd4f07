"""The contract of a storage: files by name, each whole or not there at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from dorylax.errors import named
from dorylax.store.base import OtherContentError, StorageError


class Content(NamedTuple):
    """What a file is to hold.

    Attributes:
        size: in bytes.
        sha256: of its bytes, 64 hexadecimal digits.
    """

    size: int
    sha256: str


@runtime_checkable
class Storage(Protocol):
    """Files below one place, by names with `/` between folders.

    Names are relative, and lead nowhere else (`check_name`). A file comes into being at once, with all its content; one
    that is there is replaced. Every method may be called from any thread.
    """

    @property
    def url(self) -> str:
        """The place, as users write it."""

    def names(self, folder: str = "") -> list[str]:
        """All files below a folder, in order; without what interrupted processes have left. None where it is not there.

        Raises:
            OSError: it cannot be listed.
        """

    def read(self, name: str) -> bytes:
        """The content of a small file.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read.
        """

    def fetch(self, name: str, path: Path, content: Content) -> None:
        """Copies a file to a path of this machine, in place of one that may be there, if it holds what it should.

        Args:
            name: of the file.
            path: where it is to lie; its folder must be there.
            content: what it must hold.

        Raises:
            FileNotFoundError: there is none.
            OtherContentError: it holds something else.
            OSError: it cannot be read, or written here. There is nothing at `path` that was not there before.
        """

    def put(self, name: str, content: bytes) -> None:
        """Stores a small file.

        Raises:
            OSError: it cannot be written; what was there stays.
        """

    def put_file(self, name: str, path: Path) -> Content:
        """Stores a file of any size from a path of this machine.

        Returns:
            What it holds.

        Raises:
            StorageError: the file changed on the way: what is stored is to be taken for nothing.
            OSError: it cannot be read, or stored; what was there stays.
        """

    def delete(self, name: str) -> None:
        """Deletes a file; one that is not there is none to delete.

        Raises:
            OSError: it cannot be deleted.
        """

    def close(self) -> None:
        """Gives back connections; a second call does nothing."""


def content_of(path: Path) -> Content:
    """What a file of this machine holds.

    Raises:
        OSError: it cannot be read; names it.
    """
    with named(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Content(file.tell(), sha256)


def check_content(path: Path, expected: Content, shown: str) -> None:
    """Passes where a file of this machine holds what it should.

    Args:
        path: of the file.
        expected: what it must hold.
        shown: what users call the file.

    Raises:
        OtherContentError: it holds something else.
        OSError: it cannot be read.
    """
    with named(path):
        size = path.stat().st_size
    if size != expected.size:
        raise OtherContentError(
            f"{shown} is damaged or another file: it has {size:,} bytes, expected {expected.size:,}"
        )
    if (found := content_of(path).sha256) != expected.sha256:
        raise OtherContentError(
            f"{shown} is damaged or another file: its SHA-256 is {found}, expected {expected.sha256}"
        )


def is_name(name: str) -> bool:
    """Whether it is the name of a stored file: relative, and leading nowhere else."""
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def check_name(name: str) -> str:
    """A name, where it is one; names may come from files that others have written.

    Raises:
        StorageError: it is empty, absolute, or leads out of its place.
    """
    if not is_name(name):
        raise StorageError(f"{name!r} is no name of a stored file: it must be relative, without . and ..")
    return name
