"""Where checkpoints lie: a folder each, in one of this machine or below a prefix of S3.

Either way a checkpoint comes into being at once: here by the rename of its folder, there when its manifest is put, which is
the last of its files and the first to be deleted. What was interrupted before is no checkpoint, and is cleared.

A place outside of a run's directory has a file `run.json`, which says whose it is.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from dorylax.errors import named
from dorylax.store.arrays import FOLDER
from dorylax.store.base import Content, Location, NotThereError, OtherContentError, StorageError, is_name
from dorylax.store.base import parse_place as parse
from dorylax.store.durable import (
    leftover_of,
    make_folder,
    remove_file,
    remove_folder,
    remove_leftovers,
    temporary_path,
    write_file,
    write_folder,
)
from dorylax.store.s3 import S3Storage

MANIFEST = "manifest.json"
OWNER = "run.json"

_NAME = re.compile(r"epoch-(\d{8,})")

Fill = Callable[[Path, str], object]
"""Writes all files of a checkpoint into a new empty folder of this machine, but parts to the place that it is told."""


class CheckpointPlace(ABC):
    """A place of checkpoints, by their numbers of finished epochs."""

    @abstractmethod
    def numbers(self) -> list[int]:
        """Of the checkpoints that there are, ascending; damaged ones included.

        Raises:
            OSError: the place cannot be listed.
        """

    @abstractmethod
    def path(self, number: int) -> Path | str:
        """Of a checkpoint: a path, or a URL."""

    @abstractmethod
    def write(self, number: int, fill: Fill) -> None:
        """Makes a checkpoint, in place of one that may be there.

        Raises:
            OSError: it could not be written; others are untouched.
            Exception: what `fill` raises; likewise.
        """

    @abstractmethod
    def remove(self, number: int) -> None:
        """Deletes a checkpoint; one that is half deleted is none.

        Raises:
            OSError: it cannot be deleted.
        """

    @abstractmethod
    def clear_unfinished(self) -> None:
        """Deletes what is no checkpoint because its process was killed, or because something refused; or leaves it."""

    @abstractmethod
    def owner(self) -> bytes | None:
        """The content of `run.json`; None where there is none.

        Raises:
            OSError: it cannot be read.
        """

    @abstractmethod
    def own(self, content: bytes) -> None:
        """Writes `run.json`, and tries all else that a run will do here.

        Raises:
            OSError: something of it is refused.
        """

    @abstractmethod
    def disown(self) -> None:
        """Deletes `run.json`.

        Raises:
            OSError: it cannot be deleted.
        """

    @abstractmethod
    def opened(self, number: int, *, parts: bool) -> contextlib.AbstractContextManager[Path]:
        """A checkpoint's files in a folder of this machine, as long as it is open. They are not to be changed.

        Args:
            number: of a checkpoint.
            parts: with those of its parts.

        Raises:
            OSError: the place cannot be read. A file that is missing or is not what the manifest says is not there.
        """


@final
class LocalPlace(CheckpointPlace):
    """In a folder, which is made when the first checkpoint is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()  # Orbax takes absolute paths only

    def numbers(self) -> list[int]:
        """See `CheckpointPlace`."""
        if not self._folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, number: int) -> Path:
        """See `CheckpointPlace`."""
        return self._folder / _name(number)

    def write(self, number: int, fill: Fill) -> None:
        """See `CheckpointPlace`."""
        make_folder(self._folder)
        write_folder(self.path(number), lambda folder: fill(folder, str(folder)))

    def remove(self, number: int) -> None:
        """See `CheckpointPlace`."""
        remove_folder(self.path(number))

    def clear_unfinished(self) -> None:
        """See `CheckpointPlace`."""
        remove_leftovers(self._folder, _NAME.fullmatch)

    def owner(self) -> bytes | None:
        """See `CheckpointPlace`."""
        path = self._folder / OWNER
        with contextlib.suppress(FileNotFoundError), named(path):
            return path.read_bytes()
        return None

    def own(self, content: bytes) -> None:
        """See `CheckpointPlace`."""
        make_folder(self._folder)
        write_file(self._folder / OWNER, content)

    def disown(self) -> None:
        """See `CheckpointPlace`. A folder that is then empty goes too."""
        remove_file(self._folder / OWNER)
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    @contextlib.contextmanager
    def opened(self, number: int, *, parts: bool) -> Iterator[Path]:  # noqa: ARG002
        """See `CheckpointPlace`."""
        yield self.path(number)

    def __str__(self) -> str:
        return str(self._folder)


@final
class S3Place(CheckpointPlace):
    """Below a prefix of S3.

    Args:
        location: the prefix.

    Raises:
        AwsError: boto3 is not installed, or cannot be set up.
    """

    def __init__(self, location: Location) -> None:
        self._storage = S3Storage(location)

    def numbers(self) -> list[int]:
        """See `CheckpointPlace`."""
        return sorted(number for number, names in self._found().items() if f"{_name(number)}/{MANIFEST}" in names)

    def path(self, number: int) -> str:
        """See `CheckpointPlace`."""
        return f"{self._storage.url}/{_name(number)}"

    def write(self, number: int, fill: Fill) -> None:
        """See `CheckpointPlace`. Files are put from a temporary folder, for which there must be room."""
        self._drop(number, self._storage.names(_name(number)))
        try:
            with tempfile.TemporaryDirectory(prefix="dorylax-checkpoint-") as folder:
                fill(Path(folder), self.path(number))
                for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                    name = path.relative_to(folder).as_posix()
                    if name != MANIFEST:
                        self._storage.put_file(f"{_name(number)}/{name}", path)
                self._storage.put(f"{_name(number)}/{MANIFEST}", (Path(folder) / MANIFEST).read_bytes())
        except BaseException:
            with contextlib.suppress(Exception):
                self._drop(number, self._storage.names(_name(number)))
            raise

    def remove(self, number: int) -> None:
        """See `CheckpointPlace`."""
        self._drop(number, self._storage.names(_name(number)))

    def clear_unfinished(self) -> None:
        """See `CheckpointPlace`."""
        with contextlib.suppress(OSError):
            for number, names in self._found().items():
                if f"{_name(number)}/{MANIFEST}" not in names:
                    self._drop(number, names)
            for name in self._storage.names():
                if _NAME.fullmatch(leftover_of(Path(name.partition("/")[0])) or ""):
                    self._storage.delete(name)

    def owner(self) -> bytes | None:
        """See `CheckpointPlace`."""
        with contextlib.suppress(NotThereError):
            return self._storage.read(OWNER)
        return None

    def own(self, content: bytes) -> None:
        """See `CheckpointPlace`."""
        self._storage.put(OWNER, content)
        self._storage.delete(trial_name())  # a right of its own, which what is not there needs too
        if self.owner() != content:
            raise StorageError(f"{self}/{OWNER} is not what was just written: another run begins there")

    def disown(self) -> None:
        """See `CheckpointPlace`."""
        self._storage.delete(OWNER)

    @contextlib.contextmanager
    def opened(self, number: int, *, parts: bool) -> Iterator[Path]:
        """See `CheckpointPlace`. Files are fetched into a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="dorylax-checkpoint-") as folder:
            with contextlib.suppress(NotThereError):
                manifest = self._storage.read(f"{_name(number)}/{MANIFEST}")
                (Path(folder) / MANIFEST).write_bytes(manifest)
                for name, content in _listed(manifest).items():
                    if parts or not name.startswith(FOLDER):
                        path = Path(folder) / name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        with contextlib.suppress(NotThereError, OtherContentError):
                            self._storage.fetch(f"{_name(number)}/{name}", path, content)
            yield Path(folder)

    def _found(self) -> dict[int, list[str]]:
        """The names of files by the numbers of their checkpoints."""
        found: dict[int, list[str]] = {}
        for name in self._storage.names():
            if match := _NAME.fullmatch(name.partition("/")[0]):
                found.setdefault(int(match[1]), []).append(name)
        return found

    def _drop(self, number: int, names: list[str]) -> None:
        manifest = f"{_name(number)}/{MANIFEST}"
        for name in sorted(names, key=lambda name: name != manifest):
            self._storage.delete(name)

    def __str__(self) -> str:
        return self._storage.url


def trial_name() -> str:
    """Of a file that nobody else writes, by which processes see whether they see the same place; cleared if it stays."""
    return f"{temporary_path(Path(_name(0)))}/trial"


def place_at(text: str) -> CheckpointPlace:
    """The place at a path, or below `s3://bucket/prefix`. Nothing is asked or made yet.

    Raises:
        ValueError: it is neither.
        AwsError: boto3 is not installed, or cannot be set up.
    """
    found = parse(text)
    return S3Place(found) if isinstance(found, Location) else LocalPlace(found)


def _name(number: int) -> str:
    return f"epoch-{number:08d}"


def _listed(manifest: bytes) -> dict[str, Content]:
    """The files of a manifest; none where it is damaged, which whoever reads it will say."""
    try:
        files = json.loads(manifest)["files"]
        found = {str(name): Content(int(spec["bytes"]), str(spec["sha256"])) for name, spec in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: content for name, content in found.items() if is_name(name)}
