"""Code that a folder names. It runs only with the user's permission.

References on the command line, in programs, and in the user's files are trusted. References in the files of a run or a sweep
may come from a stranger, so reading a folder must not run them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.machinery
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from dorylax.errors import InputError
from dorylax.user_code.references import is_file, place_of


@final
@dataclasses.dataclass(frozen=True)
class FolderCode:
    """The code that the configurations of a folder name.

    Attributes:
        named_by: The file with the references, for errors.
        references: The references that come from the folder; None for all.
        trusted: Whether they may run.
        files: Place (`FILE.py`) → the recorded path of the file, which may be gone.
        options: Reference → its recorded options with their defaults; None if the folder has no record.
    """

    named_by: str
    references: frozenset[str] | None
    trusted: bool = False
    files: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    options: Mapping[str, Mapping[str, Any]] | None = dataclasses.field(default=None, compare=False)

    def names(self, reference: str) -> bool:
        """Return whether a reference comes from the folder instead of the user."""
        return self.references is None or reference in self.references

    def check(self) -> None:
        """Check that all references of the folder may run.

        Raises:
            InputError: `located` refuses a reference.
        """
        for reference in sorted(self.references or ()):
            self.located(reference)

    def located(self, reference: str) -> str:
        """Return a reference that is valid in every folder.

        A file is the recorded one, or if that is gone, the file of this name relative to the current folder.

        Raises:
            InputError: The reference comes from a folder that is not trusted (the message has the file and its SHA-256),
                or its file does not exist.
        """
        if not self.names(reference):
            return reference
        place = place_of(reference)
        if not is_file(place):
            if not self.trusted:
                raise self._refusal(reference, f"would import the module {place!r}, {_described(_module_file(place))}")
            return reference
        file = self._file(reference, place)
        if not self.trusted:
            raise self._refusal(reference, f"would run {_described(file)}")
        return f"{file}:{reference.rpartition(':')[2]}"

    def _file(self, reference: str, place: str) -> Path:
        noted = self.files.get(place, place)
        candidates = dict.fromkeys(Path(file).absolute() for file in (noted, place) if is_file(file))
        for path in candidates:
            if path.is_file():
                return path
        listed = " nor ".join(repr(str(path)) for path in candidates)
        raise InputError(f"{self.named_by} names the code {reference!r}, and there is no file {listed}")

    def _refusal(self, reference: str, does: str) -> InputError:
        return InputError(
            f"{self.named_by} names the code {reference!r}, which {does}: read it first, then say that you trust it by "
            "--trust (in Python trust=True)"
        )


def _described(file: Path | None) -> str:
    """Return a description of a file for messages; quoted, because a folder may contain any name."""
    if file is None:
        return "of which no file is found"
    return f"{str(file.resolve())!r} (SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()})"


def _module_file(name: str) -> Path | None:
    """Find a module without importing its packages, unlike `importlib.util.find_spec`."""
    parts = name.split(".")
    spec = importlib.machinery.PathFinder.find_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:  # there is no such package
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)
