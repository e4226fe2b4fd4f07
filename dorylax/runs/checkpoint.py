"""Checkpoints of a run: arrays written by Orbax, sealed by a manifest of checksums, verified before they are used.

    checkpoints/epoch-00000012/arrays/        Orbax: large arrays, by group and name, and one of all the small ones
    checkpoints/epoch-00000012/record.json    plain values beside them, and each array's shape, dtype and place
    checkpoints/epoch-00000012/hosts/         `dorylax.store.arrays`: arrays that other processes hold, and write themselves
    checkpoints/epoch-00000012/manifest.json  size and SHA-256 of every file above, and its own digest

A checkpoint comes into being at once, after everything in it is on disk (`dorylax.store.checkpoint`). One whose files
do not match its manifest is refused and the one before is used. What is saved, and whether it fits a model, is the trainer's
business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.runs import packing
from dorylax.store.arrays import FOLDER, Part, PartsWriter, read_part
from dorylax.store.checkpoint import MANIFEST, CheckpointPlace, LocalPlace
from dorylax.store.digest import sealed, unsealed
from dorylax.store.durable import write_json

SCHEMA = 3
"""Of what is written where there are parts. What has none is of 2; those of 1, whose arrays are all stored as they are, are
read, too."""

_WITHOUT_PARTS = 2

_WITHOUT_DIGEST = 1  # the newest schema that there are files of without one

PARTS_GROUP = "pipeline"
"""The group of arrays that those of parts belong to."""

Arrays = Mapping[str, Mapping[str, Any]]

# Errors that a whole file can give: taken for damage, it would be dropped by the next save.
_SAYS_NOTHING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM}
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class CheckpointError(DorylaxError, RuntimeError):
    """A checkpoint that could not be written, or none left that can be read.

    Attributes:
        user_error: whether the user asked for what cannot be (exit code 2), or the machine failed (1).
    """

    user_error: ClassVar[bool] = False


@final
class CheckpointMismatchError(CheckpointError):
    """A whole checkpoint, but of another model, data set, configuration or version."""

    user_error: ClassVar[bool] = True


@final
class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over."""


class _DamagedError(DorylaxError):
    """Why a checkpoint cannot be trusted."""


@final
@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read.

    Attributes:
        path: where it lies.
        epochs: how many epochs were finished when it was saved.
        arrays: group → name → NumPy array, bit for bit as saved.
        record: the plain values saved beside them.
        parts: by name, those that others have written; their files are yet to be read and checked.
    """

    path: Path | str
    epochs: int
    arrays: dict[str, dict[str, np.ndarray]]
    record: dict[str, Any]
    parts: dict[str, Part]


@final
class Checkpoints:
    """The checkpoints in one place.

    Args:
        place: where; a folder is made when the first checkpoint is saved.
        keep: how many of the newest stay; at least 1.
    """

    def __init__(self, place: Path | CheckpointPlace, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep must be ≥ 1, got {keep}")
        self._place = LocalPlace(place) if isinstance(place, Path) else place
        self._keep = keep
        self._damaged: set[int] = set()

    def epochs(self) -> list[int]:
        """The numbers of finished epochs that there are checkpoints of, ascending; damaged ones included.

        Raises:
            OSError: the place cannot be listed.
        """
        return self._place.numbers()

    def path(self, epochs: int) -> Path | str:
        """Where the checkpoint after so many epochs lies."""
        return self._place.path(epochs)

    def save(
        self, epochs: int, arrays: Arrays, record: Mapping[str, Any], parts: PartsWriter | None = None
    ) -> Path | str:
        """Saves a checkpoint, then drops all but the newest; blocks until it is on disk.

        Checkpoints of later epochs are dropped too: the run has gone back before them and will come there again.

        Args:
            epochs: how many epochs are finished.
            arrays: group → name → array (NumPy or JAX); no group is called `packed`.
            record: JSON values to save beside them.
            parts: who writes what others hold; None where nobody does.

        Returns:
            Its path.

        Raises:
            CheckpointError: it could not be written (a full disk, say). Earlier checkpoints are untouched.
        """
        try:
            self._place.write(
                epochs, lambda folder, url: _write(folder, epochs, arrays, record, place=url, parts=parts)
            )
        # Besides OSError, storage backends report a full disk as ValueError or RuntimeError.
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint after {epochs} epochs could not be written to {self._place}: {_in_one_line(error)}"
                + self._what_is_left()
            ) from error
        self._damaged.discard(epochs)
        with contextlib.suppress(OSError):  # what is not removed only takes room; the next save tries again
            self._prune(epochs)
        return self.path(epochs)

    def clear_unfinished(self) -> None:
        """Removes what a process left half-written or half-removed that was killed, or that the file system refused."""
        self._place.clear_unfinished()

    def remove_all(self) -> None:
        """Drops them all, and what is unfinished; or leaves what cannot be removed, which only takes room."""
        with contextlib.suppress(OSError):
            for number in self.epochs():
                self._place.remove(number)
            self.clear_unfinished()
            self._place.disown()

    def restore(self, *, parts: bool = True) -> Checkpoint | None:
        """Reads the newest checkpoint that is whole.

        Args:
            parts: with what others have written, in the group `pipeline`; else that is for others to read and to check.

        Returns:
            The checkpoint; None where there are none at all.

        Warns:
            CheckpointWarning: for each damaged one that was passed over, by its path.

        Raises:
            CheckpointError: there are checkpoints and every one is damaged, or this process cannot read files now.
        """
        damaged: set[int] = set()
        while left := [number for number in self.epochs() if number not in damaged]:
            epochs = left[-1]
            try:
                return self._read(epochs, parts=parts)
            except _DamagedError as error:
                if epochs not in self.epochs():  # a run that goes on has dropped it, and has a newer one
                    continue
                damaged.add(epochs)
                self._damaged.add(epochs)
                warnings.warn(
                    f"checkpoint {self.path(epochs)} is damaged and not used: {_in_one_line(error)}",
                    CheckpointWarning,
                    stacklevel=2,
                )
        if damaged:
            raise CheckpointError(
                f"every checkpoint in {self._place} is damaged ({len(damaged)} of them): restore the folder from a "
                "backup, or delete it to start the run again from its first epoch"
            )
        return None

    def _prune(self, newest: int) -> None:
        numbers = self.epochs()
        whole = [number for number in numbers if number <= newest and number not in self._damaged]
        for number in set(numbers) - set(whole[-self._keep :]):
            with contextlib.suppress(OSError):
                self._place.remove(number)
        self.clear_unfinished()  # what could not be removed at once

    def _read(self, epochs: int, *, parts: bool) -> Checkpoint:
        try:
            with self._place.opened(epochs, parts=parts) as folder:
                found = _read(folder, self.path(epochs), epochs, parts=parts)
                if not (parts and found.parts):
                    return found
                # Where they lie now: the folder may be a copy.
                group = dict(found.arrays.get(PARTS_GROUP, {}))
                for part in found.parts.values():
                    group |= read_part(part._replace(place=str(folder)))
                return dataclasses.replace(found, arrays=found.arrays | {PARTS_GROUP: group}, parts={})
        except OSError as error:
            raise CheckpointError(f"checkpoint {self.path(epochs)} cannot be read: {_in_one_line(error)}") from error

    def _what_is_left(self) -> str:
        try:
            left = [self.path(number) for number in self.epochs() if number not in self._damaged]
        except OSError:  # too many open files, say
            return ""
        return f". The one before is untouched: {left[-1]}" if left else ". There is no earlier one"


def _write(
    folder: Path,
    epochs: int,
    arrays: Arrays,
    record: Mapping[str, Any],
    *,
    place: str,
    parts: PartsWriter | None,
) -> None:
    from dorylax.runs import orbax_arrays  # late: slow to import, and only runs with checkpoints need it

    stored, index = packing.pack(arrays)
    orbax_arrays.write(folder / "arrays", stored)
    written: Mapping[str, Part] = {}
    if parts is not None:
        (folder / FOLDER).mkdir()
        written = parts.write(place)
    schema = SCHEMA if written else _WITHOUT_PARTS
    content = {"schema": schema, "epochs": epochs, "arrays": index, "record": dict(record)}
    if written:
        content["parts"] = {name: {"file": part.file, "arrays": part.arrays} for name, part in written.items()}
    write_json(folder / "record.json", content)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    listing = {
        name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for name, path in files.items()
        if not name.startswith(FOLDER)
    }
    # As those say who have written them.
    listing |= {part.file: {"bytes": part.size, "sha256": part.sha256} for part in written.values()}
    write_json(folder / MANIFEST, sealed({"schema": schema, "files": listing}))


def _read(folder: Path, place: Path | str, epochs: int, *, parts: bool) -> Checkpoint:
    from dorylax.runs import orbax_arrays

    files = _verify(folder, place, parts=parts)
    try:
        content = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        number, index, record = content["epochs"], content["arrays"], content["record"]
        stored = packing.stored_names(index)
        known = {
            str(name): Part(str(place), entry["file"], *files[entry["file"]], dict(entry["arrays"]))
            for name, entry in content.get("parts", {}).items()
        }
    except _UNREADABLE as error:
        raise _unread(folder, "its record", error) from error
    if number != epochs:
        raise _DamagedError(f"it is of {number} epochs, not of {epochs}: its folder was renamed")
    try:
        arrays = packing.unpack(index, orbax_arrays.read(folder / "arrays", stored))
    except _UNREADABLE as error:
        raise _unread(folder, "its arrays", error) from error
    return Checkpoint(place, epochs, arrays, record, known)


def _verify(folder: Path, place: Path | str, *, parts: bool) -> dict[str, tuple[int, str]]:
    """Raises `_DamagedError` unless every file is exactly as it was written; gives size and SHA-256 of each."""
    try:
        # Its digest first: whatever is wrong in a manifest that was not written so is damage, not another version.
        manifest = unsealed(json.loads((folder / MANIFEST).read_text(encoding="utf-8")), without=_WITHOUT_DIGEST)
        schema = manifest["schema"]
        if schema not in range(1, SCHEMA + 1):
            raise CheckpointMismatchError(f"{place} has schema {schema}, this version of dorylax reads 1 to {SCHEMA}")
        files = {str(name): (spec["bytes"], spec["sha256"]) for name, spec in manifest["files"].items()}
    except _UNREADABLE as error:
        raise _unread(folder, "its manifest", error) from error
    if "record.json" not in files:
        raise _DamagedError("its manifest does not list record.json")
    for name, (size, digest) in files.items():
        of_others = name.startswith(FOLDER) and not parts
        if of_others and isinstance(place, str):
            continue  # not fetched
        path = folder / name
        try:
            actual = path.stat().st_size
            if actual != size:
                raise _DamagedError(f"{name} has {actual} bytes, {size} were written")
            if not of_others and _sha256(path) != digest:
                raise _DamagedError(f"{name} does not have the SHA-256 that was recorded")
        except OSError as error:
            raise _unread(folder, name, error) from error
    return files


def _unread(folder: Path, what: str, error: Exception) -> CheckpointError | _DamagedError:
    """What follows from an error in reading: damage, or no more than that this process cannot read now."""
    if isinstance(error, OSError) and error.errno in _SAYS_NOTHING:
        return CheckpointError(f"checkpoint {folder} cannot be read: {error}")
    return _DamagedError(f"{what} cannot be read: {error}")


def _in_one_line(error: Exception) -> str:
    """Those of storage backends may have many lines."""
    return " ".join(str(error).split())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
