"""The build context: all files that a container engine needs besides the base image and the wheels."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, final

from dorylax.errors import InputError
from dorylax.serverless.deploy.image.base import pinned
from dorylax.serverless.deploy.image.contents import ENTRY, closure, distributions, requirements
from dorylax.serverless.deploy.image.dockerfile import default_base, dockerfile
from dorylax.serverless.deploy.image.lock import PACKAGED, locked, read_lock
from dorylax.serverless.deploy.settings import Architecture
from dorylax.version import __version__

_DIGITS = 12
_TAG = re.compile(rf".*:(?P<dorylax>[^:/]+)-jax(?P<jax>[^:/]+)-(?:x86_64|arm64)-[0-9a-f]{{{_DIGITS}}}")


@final
class Releases(NamedTuple):
    """The releases that must be the same where tasks are made and where they run."""

    dorylax: str
    jax: str

    @classmethod
    def here(cls) -> Releases:
        """Those of this installation."""
        return cls(__version__, importlib.metadata.version("jax"))

    @classmethod
    def of_image(cls, address: str) -> Releases | None:
        """Those that an image's tag names; None if it is not one of ours."""
        found = _TAG.fullmatch(address)
        return None if found is None else cls(found["dorylax"], found["jax"])


@final
@dataclasses.dataclass(frozen=True)
class Context:
    """What an image is built from.

    Attributes:
        architecture: of the function.
        distributions: names of those to install.
        files: contents by path, `/` between parts: the Dockerfile, the requirements with hashes, the modules.
        base: image to begin from.
    """

    architecture: Architecture
    distributions: tuple[str, ...]
    files: Mapping[str, bytes]
    base: str

    @classmethod
    def make(
        cls, architecture: Architecture, *, lapack: bool = False, base: str | None = None, lock: Path | None = None
    ) -> Context:
        """The context of this installation.

        Args:
            architecture: of the function.
            lapack: with SciPy.
            base: image to begin from, with the running Python's minor version (default: Python's own).
            lock: file with hashes of the wheels (default: the one that comes with dorylax).

        Raises:
            InputError: a distribution is not installed, or the lock lacks it.
            OSError: the lock cannot be read.
        """
        python = sys.version_info[:2]
        base = base or default_base(python)
        lines = locked(requirements(lapack=lapack), read_lock(lock or PACKAGED))
        files = {
            "Dockerfile": dockerfile(architecture, base, python).encode(),
            "requirements.txt": "".join(f"{line}\n" for line in lines).encode(),
        }
        files |= {place: path.read_bytes() for place, path in closure(ENTRY).modules.items()}
        return cls(architecture, distributions(lapack=lapack), files, base)

    def pinned(self, pin: Callable[[str], str] = pinned) -> Context:
        """The same with its base by digest, as it is built. Its tag is not the image's.

        Args:
            pin: gives an image's address by digest.

        Raises:
            InputError: nobody knows the digest.
        """
        base = pin(self.base)
        text = dockerfile(self.architecture, base, sys.version_info[:2])
        return dataclasses.replace(self, files={**self.files, "Dockerfile": text.encode()}, base=base)

    @property
    def tag(self) -> str:
        """A tag that says what is in the image: releases, architecture, and a hash of all files.

        It covers the wheels by their hashes, and the base as it was given: by digest, if it was given so.
        """
        digest = hashlib.sha256()
        for place, content in sorted(self.files.items()):
            digest.update(f"{len(place)} {len(content)}\n{place}".encode())
            digest.update(content)
        here = Releases.here()
        return f"{here.dorylax}-jax{here.jax}-{self.architecture}-{digest.hexdigest()[:_DIGITS]}"

    def write(self, folder: Path) -> None:
        """Writes the files.

        Raises:
            InputError: the folder is not empty.
        """
        make_empty(folder)
        for place, content in self.files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def make_empty(folder: Path) -> None:
    """Makes a folder, or takes an empty one.

    Raises:
        InputError: it is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(f"{folder} must be empty, and is not: choose a new folder")
