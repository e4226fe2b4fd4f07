"""Build context of the image: every file a container engine needs, except the base image and the wheels."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, final

from dorylax.errors import InputError
from dorylax.serverless.deploy.image.base import pinned
from dorylax.serverless.deploy.image.contents import (
    HANDLER,
    LEFT_OUT_FOLDERS,
    LEFT_OUT_SUFFIXES,
    PACKAGED,
    closure,
    lock_text,
    locked,
    read_lock,
    requirements,
    wheel_options,
)
from dorylax.serverless.deploy.settings import Architecture
from dorylax.version import __version__

FOLDER = "function"
"""Folder of the function in the image, relative to the root."""

COMPILE = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
"""Compiles bytecode that Python uses unchecked: the files never change, but unpacking an image may change their times."""

_DIGITS = 12
_TAG = re.compile(rf"(?P<dorylax>.+)-jax(?P<jax>.+)-(?:x86_64|arm64)-[0-9a-f]{{{_DIGITS}}}")


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
    def of_tag(cls, tag: str) -> Releases | None:
        """Parse the versions from an image's tag. Returns None for a tag that dorylax did not generate."""
        found = _TAG.fullmatch(tag)
        return None if found is None else cls(found["dorylax"], found["jax"])


@final
@dataclasses.dataclass(frozen=True)
class Context:
    """Inputs of an image build.

    Attributes:
        architecture: Processor architecture of the function.
        files: File contents by path, separated by `/`: the Dockerfile, the requirements with hashes, the modules.
        base: Address of the base image.
    """

    architecture: Architecture
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
            base: Base image with the running Python's minor version (default: the official Python image, from a registry
                that works without an account).
            lock: Lock file with the hashes of the wheels (default: the one packaged with dorylax).

        Raises:
            InputError: If a distribution is not installed or missing from the lock.
            OSError: If the lock cannot be read.
        """
        python = sys.version_info[:2]
        base = base or f"public.ecr.aws/docker/library/python:{python[0]}.{python[1]}-slim"
        wheels = locked(requirements(lapack=lapack), read_lock(lock or PACKAGED))
        files = {
            "Dockerfile": dockerfile(architecture, base, python).encode(),
            "requirements.txt": lock_text(wheels).encode(),
        }
        return cls(architecture, files | {place: path.read_bytes() for place, path in closure().modules.items()}, base)

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
    def distributions(self) -> tuple[str, ...]:
        """Names of the distributions to install."""
        return tuple(line.partition("==")[0] for line in self.files["requirements.txt"].decode().splitlines())

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

    def write(self, folder: Path, *, under: str = "") -> None:
        """Write the files to an empty or new folder.

        Args:
            folder: The folder.
            under: Common start of the paths to write (default: all files).

        Raises:
            InputError: If the folder is not empty.
        """
        make_empty(folder)
        for place, content in self.files.items():
            if place.startswith(under):
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


def dockerfile(architecture: Architecture, base: str, python: tuple[int, int]) -> str:
    """Generate the Dockerfile.

    The first stage installs and compiles all files on the building machine, and the final stage copies them onto the base
    image. Images for other architectures therefore build without emulation, since bytecode is portable and wheels are chosen
    by platform.

    Args:
        architecture: Processor architecture of the function.
        base: Address of an image with Python for that architecture and for the building machine; by digest for a build.
        python: Major and minor version of Python.
    """
    chosen = " ".join(wheel_options(architecture, python))
    folders = " -o ".join(f"-name {name}" for name in LEFT_OUT_FOLDERS)
    suffixes = " -o ".join(f"-name '*{suffix}'" for suffix in LEFT_OUT_SUFFIXES)
    library = f"/usr/local/lib/python{python[0]}.{python[1]}"
    compile_all = " ".join(("python", *COMPILE))
    return f"""\
ARG BASE={base}
ARG BUILD_PLATFORM=linux/amd64

FROM --platform=${{BUILD_PLATFORM}} ${{BASE}} AS build
COPY requirements.txt /requirements.txt
RUN pip install --no-cache-dir --no-compile --require-hashes --target=/{FOLDER} \\
      {chosen} \\
      -r /requirements.txt \\
 && rm -rf /{FOLDER}/bin \\
 && find /{FOLDER} -depth -type d \\( {folders} \\) -exec rm -rf {{}} + \\
 && find /{FOLDER} -type f \\( {suffixes} \\) -delete
COPY dorylax /{FOLDER}/dorylax
RUN {compile_all} /{FOLDER} \\
 && chmod -R a+rX,go-w /{FOLDER}
# The base has no bytecode of Python's own library, and the image cannot write any.
RUN mkdir /bytecode && cd {library} \\
 && {compile_all} -x '/(site-packages|test|idlelib|lib2to3)/' . \\
 && find . -name '*.pyc' -not -path './site-packages/*' -exec cp --parents {{}} /bytecode \\;

FROM ${{BASE}}
LABEL org.opencontainers.image.base.name="{base}"
COPY --from=build /bytecode {library}
COPY --from=build /{FOLDER} /{FOLDER}
ENV PYTHONPATH=/{FOLDER} PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp JAX_PLATFORMS=cpu
WORKDIR /{FOLDER}
USER 65534:65534
ENTRYPOINT {json.dumps(["python", "-m", "awslambdaric"])}
CMD {json.dumps([HANDLER])}
"""
