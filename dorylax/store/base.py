"""The contract of a storage: named files, each whole or absent, in a folder or in S3 (`dorylax.store.places`).

All methods raise OSError if the storage or the disk refuses.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

from dorylax.errors import DorylaxError, named

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[!-~]*))?")
# `s3:/bucket`, with one slash, is a typing error and no folder `s3:`.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

Writable = bytes | Path | Callable[[BinaryIO], object]
"""Content of a file: bytes, a file of this machine to copy, or a function that writes into an open file."""


@final
class StorageError(DorylaxError, OSError):
    """A storage refuses a request, or a stored file is not as expected; one line that names the URL or path.

    Attributes:
        damaged: Whether a file has other content than expected.
    """

    def __init__(self, text: str, *, damaged: bool = False) -> None:
        super().__init__(text)
        self.damaged = damaged


class Content(NamedTuple):
    """The identity of a file's content: the number of bytes, and their SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


class Location(NamedTuple):
    """A prefix in S3: the bucket, and the common start of keys without a slash at its end ("" for the whole bucket)."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, text: str) -> Location:
        """Parse `s3://bucket/prefix`, or raise ValueError."""
        found = _S3.fullmatch(text)
        if found is None:
            raise ValueError(f"must be s3://bucket/prefix, got {text!r}")
        return cls(found["bucket"], (found["prefix"] or "").strip("/"))

    def key(self, name: str) -> str:
        """Return the key of an object below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def __str__(self) -> str:
        return f"s3://{'/'.join(self).rstrip('/')}"


def parse_place(text: str) -> Path | Location:
    """Parse a place that a user wrote; `~` is the user's home, and a relative path becomes absolute.

    Raises:
        ValueError: The text is neither a path nor `s3://bucket/prefix`; the message follows the name of a setting.
    """
    if text.startswith("s3://"):
        return Location.of(text)
    if not text.strip() or "\0" in text or _SCHEME.match(text):
        raise ValueError(f"must be a path or s3://bucket/prefix, got {text!r}")
    try:
        return Path(os.path.abspath(Path(text).expanduser()))
    except RuntimeError:
        raise ValueError(f"begins with the home of a user who is not there: {text!r}") from None


class Storage(ABC):
    """Files below one place, by names with `/` between folders.

    Names are relative and stay below the place (`check_name`). A file appears in one step with all its content, and
    replaces a file of the same name. A killed process leaves only temporary files, which `names` skips and `clear`
    removes. All methods are thread-safe.
    """

    url: str
    """The place, as users write it."""

    def path(self, name: str) -> Path | str:
        """Return the path or URL of a file or folder, which need not exist; raise StorageError for other names."""
        return f"{self.url}/{check_name(name)}"

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """List all files below a folder, sorted, without temporary files; none if the folder does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a small file; raise FileNotFoundError if there is none."""

    @abstractmethod
    def put(self, name: str, content: Writable) -> None:
        """Store a file, and the folders of its name; after an error, the old file is unchanged."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists, so that no crash brings it back."""

    @abstractmethod
    def clear(self, folder: str = "") -> None:
        """Delete temporary files of killed processes and empty folders; with a folder, delete all files below it."""

    @abstractmethod
    def verified(
        self, folder: str, files: Mapping[str, Content], copies: Path | None = None
    ) -> contextlib.AbstractContextManager[Path]:
        """Give a folder of this machine with verified files of a stored folder: that folder itself, or copies.

        Any number of processes may share a folder of copies, if all their files of one name have the same content.

        Args:
            folder: Name of the stored folder; "" for the whole storage.
            files: Names in this folder, and their contents.
            copies: Folder in which copies stay, made if missing; None for a temporary folder.

        Raises:
            FileNotFoundError: The storage lacks a file.
            StorageError: A file has other content. Existing copies are unchanged after any error.
        """

    def close(self) -> None:  # noqa: B027 (a folder has nothing to close)
        """Close connections; a second call does nothing."""


def content_of(path: Path) -> Content:
    """Return the content of a file of this machine."""
    with named(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Content(file.tell(), sha256)


def check_content(path: Path, expected: Content, shown: str | None = None) -> None:
    """Raise StorageError unless a file of this machine, called `shown` in the message, has the expected content."""
    found = content_of(path)
    if found != expected:
        problem = f"its SHA-256 is {found.sha256}, expected {expected.sha256}"
        if found.size != expected.size:
            problem = f"it has {found.size:,} bytes, expected {expected.size:,}"
        raise StorageError(f"{shown or path} is damaged or another file: {problem}", damaged=True)


def check_name(name: str) -> str:
    """Return the name of a stored file; raise StorageError if it is empty, absolute, or leads out of its place."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise StorageError(f"{name!r} is no name of a stored file: it must be relative, without . and ..")
    return name
