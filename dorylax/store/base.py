"""The contract of a storage: named files, each whole or absent, in a folder (`local`) or in S3 (`s3`).

All methods raise OSError if the storage or the disk refuses.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

from dorylax.errors import DorylaxError, named
from dorylax.store.durable import arriving_file

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
    def copy_to(self, name: str, file: BinaryIO) -> None:
        """Copy a file into an open file of this machine; raise FileNotFoundError if there is none."""

    @abstractmethod
    def put(self, name: str, content: Writable) -> None:
        """Store a file, and the folders of its name; after an error, the old file is unchanged."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists, so that no crash brings it back."""

    @abstractmethod
    def clear(self, folder: str = "") -> None:
        """Delete temporary files of killed processes and empty folders; with a folder, delete all files below it."""

    def close(self) -> None:  # noqa: B027 (a folder has nothing to close)
        """Close connections; a second call does nothing."""

    def fetch(self, name: str, path: Path, content: Content) -> None:
        """Copy a file to a path of this machine, replacing a file there, if its content is as expected.

        Raises:
            FileNotFoundError: No file has this name.
            StorageError: The file has other content. `path` is unchanged after any error.
        """
        shown = str(self.path(name))
        with arriving_file(path) as part:
            self.copy_to(name, part)
            part.flush()
            check_content(Path(part.name), content, shown)

    def put_file(self, name: str, path: Path) -> Content:
        """Store a copy of a file of this machine, and return its content.

        Raises:
            StorageError: The file changed during the copy; the stored file is deleted.
        """
        content = content_of(path)
        self.put(name, path)
        if content_of(path) != content:
            self.delete(name)
            raise StorageError(f"{path} changed while it was put to {self.url}/{name}: run again when nobody writes it")
        return content


def content_of(path: Path) -> Content:
    """Return the content of a file of this machine."""
    with named(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Content(file.tell(), sha256)


def check_content(path: Path, expected: Content, shown: str) -> None:
    """Raise StorageError unless a file of this machine, called `shown` in the message, has the expected content."""
    with named(path):
        size = path.stat().st_size
    problem = f"it has {size:,} bytes, expected {expected.size:,}"
    if size == expected.size:
        found = content_of(path).sha256
        if found == expected.sha256:
            return
        problem = f"its SHA-256 is {found}, expected {expected.sha256}"
    raise StorageError(f"{shown} is damaged or another file: {problem}", damaged=True)


def check_name(name: str) -> str:
    """Return the name of a stored file; raise StorageError if it is empty, absolute, or leads out of its place."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise StorageError(f"{name!r} is no name of a stored file: it must be relative, without . and ..")
    return name
