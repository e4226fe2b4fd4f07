"""Builds and pushes the image with docker, podman or buildah, whichever there is."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, final

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.image.dockerfile import PLATFORMS

ENGINES = ("docker", "podman", "buildah")
_MACHINES = {"x86_64": "linux/amd64", "AMD64": "linux/amd64", "aarch64": "linux/arm64", "arm64": "linux/arm64"}
_LAST_LINES = 5


class RunCommand(Protocol):
    """Runs a command, with bytes for its standard input and variables added to its environment."""

    def __call__(self, command: Sequence[str], content: bytes | None, environment: Mapping[str, str]) -> None:
        """Runs it.

        Raises:
            RunError: it failed.
        """
        ...


@final
@dataclasses.dataclass(frozen=True)
class Login:
    """What a registry asks for. The password is only ever written to an engine's standard input."""

    user: str
    password: str = dataclasses.field(repr=False)


def find_engine(which: Callable[[str], str | None] = shutil.which) -> str:
    """The first engine that is installed.

    Raises:
        InputError: none is.
    """
    for name in ENGINES:
        if which(name):
            return name
    raise InputError(
        f"no container engine is installed ({', '.join(ENGINES)}): install one, or give --image with an image that was "
        "built elsewhere from `dorylax aws image --context DIR`"
    )


def build_and_push(engine: str, context: Context, address: str, login: Login, run: RunCommand | None = None) -> str:
    """Builds an image and pushes it.

    Args:
        engine: one of `ENGINES`.
        context: what to build.
        address: registry, repository and tag.
        login: to the registry.
        run: runs commands.

    Returns:
        The base that it was built from, by digest.

    Raises:
        RunError: the engine failed.
        InputError: the base's digest is not known.
    """
    run, context = run or run_command, context.pinned()
    registry = address.partition("/")[0]
    build_platform = _MACHINES.get(platform.machine(), "linux/amd64")
    with tempfile.TemporaryDirectory(prefix="dorylax-image-") as folder:
        context.write(Path(folder) / "context")
        # For podman and buildah the login is this one file, gone with the folder; docker has to be logged out.
        secret = str(Path(folder) / "auth.json")
        form = [] if engine == "docker" else ["--format", "docker"]
        options = ["--platform", PLATFORMS[context.architecture], "--build-arg", f"BUILD_PLATFORM={build_platform}"]
        # Attestations make an index of an image, which Lambda refuses.
        environment = {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
        run([engine, "build", *form, *options, "-t", address, str(Path(folder) / "context")], None, environment)
        auth = [] if engine == "docker" else ["--authfile", secret]
        try:
            run(
                [engine, "login", *auth, "--username", login.user, "--password-stdin", registry],
                login.password.encode(),
                {},
            )
            run([engine, "push", *auth, *([] if engine == "docker" else ["--format", "v2s2"]), address], None, {})
        finally:
            if engine == "docker":
                run([engine, "logout", registry], None, {})
    return context.base


def run_command(command: Sequence[str], content: bytes | None, environment: Mapping[str, str]) -> None:
    """Runs a command quietly; what it said last is in the error.

    Raises:
        RunError: it failed.
    """
    done = subprocess.run(
        list(command),
        input=b"" if content is None else content,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        lines = [" ".join(line.split()) for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
        raise RunError(f"{command[0]} {command[1]} failed ({done.returncode}): {' | '.join(lines[-_LAST_LINES:])}")
