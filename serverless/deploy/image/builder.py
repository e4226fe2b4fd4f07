"""Builds and pushes the image with the first available engine: docker, podman or buildah."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image.context import Context

ENGINES = ("docker", "podman", "buildah")
_PLATFORMS = {"x86_64": "linux/amd64", "AMD64": "linux/amd64", "aarch64": "linux/arm64", "arm64": "linux/arm64"}
_LAST_LINES = 5

RunCommand = Callable[[Sequence[str], bytes | None, Mapping[str, str]], None]
"""Function that runs a command with a standard input and additional environment variables. Raises RunError if it fails."""


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


def build_and_push(
    engine: str, context: Context, address: str, login: tuple[str, str], run: RunCommand | None = None
) -> str:
    """Build an image and push it.

    Args:
        engine: Container engine, one of `ENGINES`.
        context: Build context.
        address: Address of the image: registry, repository and tag.
        login: User and password of the registry. The password is only written to the engine's standard input.
        run: Function that runs commands (default: `run_command`).

    Returns:
        Address of the base image by digest.

    Raises:
        RunError: If the engine fails.
        InputError: If the digest of the base image cannot be found.
    """
    run, context = run or run_command, context.pinned()
    registry, (user, password) = address.partition("/")[0], login
    build_platform = _PLATFORMS.get(platform.machine(), "linux/amd64")
    with tempfile.TemporaryDirectory(prefix="dorylax-image-") as folder:
        context.write(Path(folder) / "context")
        docker = engine == "docker"
        # podman and buildah store the login in this file, which is deleted with the folder. docker needs a logout.
        auth = [] if docker else ["--authfile", str(Path(folder) / "auth.json")]
        options = ["--platform", _PLATFORMS[context.architecture], "--build-arg", f"BUILD_PLATFORM={build_platform}"]
        build = [engine, "build", *([] if docker else ["--format", "docker"]), *options, "-t", address]
        # Attestations turn an image into an index, which Lambda rejects.
        run([*build, str(Path(folder) / "context")], None, {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"})
        try:
            run(
                [engine, "login", *auth, "--username", user, "--password-stdin", registry],
                password.encode(),
                {},
            )
            run([engine, "push", *auth, *([] if docker else ["--format", "v2s2"]), address], None, {})
        finally:
            if docker:
                run([engine, "logout", registry], None, {})
    return context.base


def run_command(command: Sequence[str], content: bytes | None, environment: Mapping[str, str]) -> None:
    """Run a command without output. An error contains the last lines.

    Raises:
        RunError: If the command fails.
    """
    done = subprocess.run(
        list(command),
        input=content or b"",
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        lines = [" ".join(line.split()) for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
        raise RunError(f"{command[0]} {command[1]} failed ({done.returncode}): {' | '.join(lines[-_LAST_LINES:])}")
