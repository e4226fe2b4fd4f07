"""Code that a folder names: where it is, and that it runs only where the user says so.

What the user types is theirs: a reference on the command line, in a program, in a file that they wrote. One that the files
of a run or a sweep hold comes from whoever made the folder, who may be a stranger, and reading a folder must not run it.
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
    """What a folder says about the code that its configurations name.

    Attributes:
        named_by: the file in it that does, as errors call it.
        references: which are the folder's; None: all.
        trusted: whether they may run.
        files: the files that they were, by their places (`FILE.py`), as the folder says; they may be gone.
        options: the options that each takes, with their defaults, as the folder says; None where it does not.
    """

    named_by: str
    references: frozenset[str] | None
    trusted: bool = False
    files: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    options: Mapping[str, Mapping[str, Any]] | None = dataclasses.field(default=None, compare=False)

    def names(self, reference: str) -> bool:
        """Whether a reference is the folder's, and not the user's."""
        return self.references is None or reference in self.references

    def check(self) -> None:
        """Refuses what the folder names, unless it is trusted.

        Raises:
            InputError: as `located`.
        """
        for reference in sorted(self.references or ()):
            self.located(reference)

    def located(self, reference: str) -> str:
        """A reference that leads to the same from every folder.

        A file is the one that the folder says it was; where that is gone, the one that its name leads to from the current
        folder.

        Raises:
            InputError: it is the folder's, which is not trusted; names the file that would run and its SHA-256.
            InputError: it is the folder's, and there is no such file.
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
        noted = [Path(file) for file in (self.files.get(place),) if file is not None and is_file(file)]
        candidates = list(dict.fromkeys(path.absolute() for path in (*noted, Path(place))))
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
    """A file as messages name it; quoted, since a folder can name anything."""
    if file is None:
        return "of which no file is found"
    return f"{str(file.resolve())!r} (SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()})"


def _module_file(name: str) -> Path | None:
    """Where a module is, without importing the packages that it is in, as `importlib.util.find_spec` would."""
    parts = name.split(".")
    spec = importlib.machinery.PathFinder.find_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:  # there is no such package
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)
