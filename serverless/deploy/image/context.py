"""Build context of the image: every file a container engine needs, except the base image and the wheels."""

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
    """Versions of dorylax and JAX, which must match between the client and the function."""

    dorylax: str
    jax: str

    @classmethod
    def here(cls) -> Releases:
        """Return the versions installed here."""
        return cls(__version__, importlib.metadata.version("jax"))

    @classmethod
    def of_image(cls, address: str) -> Releases | None:
        """Parse the versions from an image's tag. Returns None for a tag that dorylax did not generate."""
        found = _TAG.fullmatch(address)
        return None if found is None else cls(found["dorylax"], found["jax"])


@final
@dataclasses.dataclass(frozen=True)
class Context:
    """Inputs of an image build.

    Attributes:
        architecture: Processor architecture of the function.
        distributions: Names of the distributions to install.
        files: File contents by path, separated by `/`: the Dockerfile, the requirements with hashes, the modules.
        base: Address of the base image.
    """

    architecture: Architecture
    distributions: tuple[str, ...]
    files: Mapping[str, bytes]
    base: str

    @classmethod
    def make(
        cls, architecture: Architecture, *, lapack: bool = False, base: str | None = None, lock: Path | None = None
    ) -> Context:
        """Build the context of this installation.

        Args:
            architecture: Processor architecture of the function.
            lapack: Whether to include SciPy.
            base: Base image with the running Python's minor version (default: the official Python image).
            lock: Lock file with the hashes of the wheels (default: the one packaged with dorylax).

        Raises:
            InputError: If a distribution is not installed or missing from the lock.
            OSError: If the lock cannot be read.
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
        """Return a copy whose base image is addressed by digest, for the build.

        The image keeps the tag of the original context; the tag of the copy differs.

        Args:
            pin: Function that maps an image's address to its address by digest.

        Raises:
            InputError: If the digest cannot be found.
        """
        base = pin(self.base)
        text = dockerfile(self.architecture, base, sys.version_info[:2])
        return dataclasses.replace(self, files={**self.files, "Dockerfile": text.encode()}, base=base)

    @property
    def tag(self) -> str:
        """Content-derived tag of the image: versions, architecture, and a hash of all files.

        The hash covers the wheels' hashes and the address of the base image.
        """
        digest = hashlib.sha256()
        for place, content in sorted(self.files.items()):
            digest.update(f"{len(place)} {len(content)}\n{place}".encode())
            digest.update(content)
        here = Releases.here()
        return f"{here.dorylax}-jax{here.jax}-{self.architecture}-{digest.hexdigest()[:_DIGITS]}"

    def write(self, folder: Path) -> None:
        """Write the files to an empty or new folder.

        Raises:
            InputError: If the folder is not empty.
        """
        make_empty(folder)
        for place, content in self.files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def make_empty(folder: Path) -> None:
    """Create a folder, or accept an existing empty one.

    Raises:
        InputError: If the folder is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(f"{folder} must be empty, and is not: choose a new folder")
