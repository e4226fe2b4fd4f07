"""Checkpoints of a run: files of arrays, sealed by a manifest with their sizes and checksums, verified before use.

    PLACE/run.json                                   the run that owns a place outside its directory
    PLACE/epoch-00000012/arrays-1f2e3a4b.bin         arrays of this process (`dorylax.store.arrays`)
    PLACE/epoch-00000012/server-0-5c6d7e8f.bin       arrays that another process holds, and writes itself
    PLACE/epoch-00000012/manifest.json               plain values, the index of all arrays, SHA-256 of every file above

The manifest is the last file written and the first one deleted, so a folder without it is no checkpoint, and the next save
removes it. This is the same on this machine and in S3. A checkpoint whose files do not match its manifest is skipped, and
the one before is used. The trainer decides which values are saved, and whether they fit a model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.errors import InputError, RunError, RunWarning, one_line
from dorylax.store import old_checkpoints
from dorylax.store.arrays import Part, PartsWriter, read_part, write_part
from dorylax.store.base import Content, StorageError
from dorylax.store.digest import sealed, unsealed
from dorylax.store.durable import temporary_path
from dorylax.store.places import LocalStorage, open_storage

SCHEMA = 4
"""Schema of manifests. Orbax wrote the arrays of 1 to 3 (`dorylax.store.old_checkpoints`)."""

MANIFEST = "manifest.json"
OWNER = "run.json"

PARTS_GROUP = "pipeline"
"""Group of the arrays in parts."""

Arrays = Mapping[str, Mapping[str, Any]]

_NAME = re.compile(r"epoch-(\d{8,})")
_WITHOUT_DIGEST = 1  # the newest schema with manifests that have no digest
# Errors of the process and not of the file: taken for damage, the next save would drop a whole checkpoint.
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM}
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@final
@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        path: Path or URL of its folder.
        epochs: Number of finished epochs.
        arrays: Group → name → NumPy array, bit for bit as saved.
        record: The plain values saved with them.
        parts: By name, the files of other processes, not yet read or verified.
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
        place: Path of a folder, made with the first checkpoint; or a text for `open_storage`.
        keep: Number of newest checkpoints to keep, at least 1.

    Raises:
        ValueError: `keep` is below 1, or the text names no place.
        RunError: The place is in S3, and boto3 cannot be set up.
    """

    def __init__(self, place: Path | str, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep must be ≥ 1, got {keep}")
        self._storage = open_storage(place if isinstance(place, str) else str(place.absolute()))
        self._keep = keep
        self._damaged: set[int] = set()

    def epochs(self) -> list[int]:
        """Return the numbers of finished epochs of all checkpoints, ascending, damaged ones included."""
        return sorted(number for number, names in self._found().items() if MANIFEST in names)

    def path(self, epochs: int) -> Path | str:
        """Return the path or URL of the checkpoint after a number of epochs."""
        return self._storage.path(_name(epochs))

    def save(
        self, epochs: int, arrays: Arrays, record: Mapping[str, Any], parts: PartsWriter | None = None
    ) -> Path | str:
        """Save a checkpoint and block until it is on disk, then drop all but the newest ones.

        Checkpoints of later epochs are dropped too: the run has gone back before them and will reach them again.

        Args:
            epochs: Number of finished epochs.
            arrays: Group → name → array (NumPy or JAX).
            record: JSON values to save with them.
            parts: Writer of the arrays in other processes; None if there are none.

        Returns:
            Its path.

        Raises:
            RunError: It could not be written (a full disk, say). Earlier checkpoints are untouched.
        """
        try:
            self._write(epochs, arrays, record, parts)
        except (OSError, ValueError) as error:
            raise RunError(
                f"the checkpoint after {epochs} epochs could not be written to {self}: {one_line(error)}"
                + self._remaining()
            ) from error
        self._damaged.discard(epochs)
        with contextlib.suppress(OSError):  # the next save removes the rest
            self._prune(epochs)
        return self.path(epochs)

    def _write(self, epochs: int, arrays: Arrays, record: Mapping[str, Any], parts: PartsWriter | None) -> None:
        folder, storage = _name(epochs), self._storage
        there = storage.names(folder)
        manifest = f"{folder}/{MANIFEST}"
        try:
            place = str(self.path(epochs))
            own = write_part(place, "arrays", _flat(arrays))
            written = {} if parts is None else parts(place)
            files = {part.file: {"bytes": part.size, "sha256": part.sha256} for part in (own, *written.values())}
            fields = {
                "schema": SCHEMA,
                "epochs": epochs,
                "files": files,
                "own": own.file,
                "arrays": _grouped(own.arrays, arrays),
                "parts": {name: {"file": part.file, "arrays": part.arrays} for name, part in written.items()},
                "record": dict(record),
            }
            storage.put(manifest, json.dumps(sealed(fields), allow_nan=False).encode() + b"\n")
        except BaseException:
            if manifest not in there:  # else these files may be of the whole checkpoint that stays
                with contextlib.suppress(Exception):
                    storage.clear(folder)
            raise
        with contextlib.suppress(OSError):
            for name in there:  # of the checkpoint that this one replaces, or of a killed process
                if name != manifest and name.removeprefix(f"{folder}/") not in files:
                    storage.delete(name)

    def clear_unfinished(self) -> None:
        """Remove the files of interrupted saves and removals, as far as the place permits."""
        with contextlib.suppress(OSError):
            self._storage.clear()
            for number, names in self._found().items():
                if MANIFEST not in names:
                    self._storage.clear(_name(number))

    def remove_all(self) -> None:
        """Remove all checkpoints, unfinished ones, and the owner, as far as the place permits."""
        with contextlib.suppress(OSError):
            for number in self.epochs():
                self._remove(number)
            self.clear_unfinished()
            self._storage.delete(OWNER)

    def restore(self, *, parts: bool = True) -> Checkpoint | None:
        """Return the newest whole checkpoint, or None if there are none.

        Args:
            parts: Whether to read the parts, into the group `pipeline`; otherwise others read and verify them.

        Warns:
            RunWarning: A damaged checkpoint was skipped; the text names it.

        Raises:
            RunError: All checkpoints are damaged, or this process cannot read files now.
            InputError: A newer version of dorylax wrote the checkpoint.
        """
        damaged: set[int] = set()
        while left := [number for number in self.epochs() if number not in damaged]:
            epochs = left[-1]
            found = self._read(epochs, parts=parts)
            if isinstance(found, Checkpoint):
                return found
            if epochs not in self.epochs():  # a running process has dropped it, and has a newer one
                continue
            damaged.add(epochs)
            self._damaged.add(epochs)
            reason = one_line(found)
            warnings.warn(f"checkpoint {self.path(epochs)} is damaged and not used: {reason}", RunWarning, stacklevel=2)
        if damaged:
            raise RunError(
                f"every checkpoint in {self} is damaged ({len(damaged)} of them): restore the folder from a backup, or "
                "delete it to start the run again from its first epoch"
            )
        return None

    def lacks(self, epochs: int) -> bool:
        """Whether there are checkpoints, but none that is whole after this number of epochs; errors as of `restore`."""
        found = self.epochs()
        return bool(found) and not (epochs in found and isinstance(self._read(epochs, parts=True), Checkpoint))

    def owner(self) -> bytes | None:
        """Return the content of `run.json`; None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self._storage.read(OWNER)
        return None

    def own(self, content: bytes) -> None:
        """Write `run.json`, and try every other request that saving will need.

        Raises:
            OSError: The place refuses one of them, or another run has written its own `run.json` meanwhile.
        """
        self._storage.put(OWNER, content)
        self._storage.delete(trial_name())  # a separate right, needed for missing files too
        if self.owner() != content:
            raise StorageError(f"{self}/{OWNER} is not what was just written: another run begins there")

    def _found(self) -> dict[int, set[str]]:
        """Return the names of files in each folder of a checkpoint, finished or not."""
        found: dict[int, set[str]] = {}
        for name in self._storage.names():
            folder, _, file = name.partition("/")
            if match := _NAME.fullmatch(folder):
                found.setdefault(int(match[1]), set()).add(file)
        return found

    def _remove(self, number: int) -> None:
        self._storage.delete(f"{_name(number)}/{MANIFEST}")
        self._storage.clear(_name(number))

    def _prune(self, newest: int) -> None:
        numbers = self.epochs()
        whole = [number for number in numbers if number <= newest and number not in self._damaged]
        for number in set(numbers) - set(whole[-self._keep :]):
            with contextlib.suppress(OSError):
                self._remove(number)
        self.clear_unfinished()  # the rest of earlier removals

    def _read(self, epochs: int, *, parts: bool) -> Checkpoint | str:
        """Return a checkpoint, or the reason why it counts as damaged; other errors as of `restore`."""
        folder, place, step = _name(epochs), self.path(epochs), "its manifest"
        try:
            # The digest first: a wrong schema in a damaged manifest is damage, and no other version.
            manifest = unsealed(json.loads(self._storage.read(f"{folder}/{MANIFEST}")), without=_WITHOUT_DIGEST)
            schema = manifest["schema"]
            if schema not in range(1, SCHEMA + 1):
                raise InputError(f"{place} has schema {schema}, this version of dorylax reads 1 to {SCHEMA}")
            step = "its content"
            files = {str(name): Content(spec["bytes"], spec["sha256"]) for name, spec in manifest["files"].items()}
            if missing := files.keys() - self._found()[epochs]:
                return f"{min(missing)} is missing"

            def part(file: str, index: Mapping[Any, Any]) -> Part:
                return Part(str(place), file, *files[file], dict(index))

            if schema < SCHEMA:
                arrays, manifest = old_checkpoints.read(self._storage, folder, files)
            else:
                index = manifest["arrays"]
                arrays = _grouped(read_part(part(manifest["own"], _flat(index))), index)
            others = {str(name): part(one["file"], one["arrays"]) for name, one in manifest.get("parts", {}).items()}
            if manifest["epochs"] != epochs:
                return f"it is of {manifest['epochs']} epochs, not of {epochs}: its folder was renamed"
            if parts and others:
                for one in others.values():
                    arrays.setdefault(PARTS_GROUP, {}).update(read_part(one))
                others = {}
            return Checkpoint(place, epochs, arrays, manifest["record"], others)
        except InputError:
            raise
        except ImportError as error:
            raise RunError(f"checkpoint {place} cannot be read: {error}") from error
        except _DAMAGE as error:
            damaged = isinstance(error, FileNotFoundError) or getattr(error, "damaged", False)
            passing = not isinstance(self._storage, LocalStorage) or getattr(error, "errno", None) in _PASSING
            if isinstance(error, OSError) and passing and not damaged:
                raise RunError(f"checkpoint {place} cannot be read: {one_line(error)}") from error
            return f"{step} cannot be read: {error}"

    def _remaining(self) -> str:
        try:
            left = [self.path(number) for number in self.epochs() if number not in self._damaged]
        except OSError:  # too many open files, say
            return ""
        return f". The one before is untouched: {left[-1]}" if left else ". There is no earlier one"

    def __str__(self) -> str:
        return self._storage.url


def trial_name() -> str:
    """Return a new name of a temporary file, by which processes find out whether they see the same place."""
    return temporary_path(Path("trial")).name


def _flat(groups: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(group, name): value for group, of in groups.items() for name, value in of.items()}


def _grouped(flat: Mapping[Any, Any], groups: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {group: {name: flat[group, name] for name in of} for group, of in groups.items()}


def _name(number: int) -> str:
    return f"epoch-{number:08d}"
