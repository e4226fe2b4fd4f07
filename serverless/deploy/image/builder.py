"""Builds and pushes the image with the first available engine: docker, podman or buildah."""

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
    """Function that runs a command with bytes as standard input and additional environment variables."""

    def __call__(self, command: Sequence[str], content: bytes | None, environment: Mapping[str, str]) -> None:
        """Run a command.

        Raises:
            RunError: If the command fails.
        """
        ...


@final
@dataclasses.dataclass(frozen=True)
class Login:
    """Credentials of a registry. The password is only written to an engine's standard input."""

    user: str
    password: str = dataclasses.field(repr=False)


def find_engine(which: Callable[[str], str | None] = shutil.which) -> str:
    """Find the first installed engine.

    Raises:
        InputError: If no engine is installed.
    """
    for name in ENGINES:
        if which(name):
            return name
    raise InputError(
        f"no container engine is installed ({', '.join(ENGINES)}): install one, or give --image with an image that was "
        "built elsewhere from `dorylax aws image --context DIR`"
    )


def build_and_push(engine: str, context: Context, address: str, login: Login, run: RunCommand | None = None) -> str:
    """Build an image and push it.

    Args:
        engine: Container engine, one of `ENGINES`.
        context: Build context.
        address: Address of the image: registry, repository and tag.
        login: Credentials of the registry.
        run: Function that runs commands (default: `run_command`).

    Returns:
        Address of the base image by digest.

    Raises:
        RunError: If the engine fails.
        InputError: If the digest of the base image cannot be found.
    """
    run, context = run or run_command, context.pinned()
    registry = address.partition("/")[0]
    build_platform = _MACHINES.get(platform.machine(), "linux/amd64")
    with tempfile.TemporaryDirectory(prefix="dorylax-image-") as folder:
        context.write(Path(folder) / "context")
        # podman and buildah store the login in this file, which is deleted with the folder. docker needs a logout.
        secret = str(Path(folder) / "auth.json")
        form = [] if engine == "docker" else ["--format", "docker"]
        options = ["--platform", PLATFORMS[context.architecture], "--build-arg", f"BUILD_PLATFORM={build_platform}"]
        # Attestations turn an image into an index, which Lambda rejects.
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
    """Run a command without output. An error contains the last lines.

    Raises:
        RunError: If the command fails.
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
