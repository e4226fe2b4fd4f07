"""The Dockerfile's steps without a container engine and without a network: the image's files in an empty folder.

Distributions are copied from this installation, so the root is for this machine, whatever the architecture.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, final

from dorylax.errors import RunError
from dorylax.serverless.deploy.image.contents import ENTRY, left_out
from dorylax.serverless.deploy.image.context import Context, make_empty
from dorylax.serverless.deploy.image.dockerfile import COMPILE, FOLDER

_SECONDS = 300.0

# Run with the image's files alone to import from. The invocation comes on standard input: it holds keys.
_PROBE = f"""
import json, resource, sys, time
sys.path.append(sys.argv[1])
start = time.perf_counter()
import {ENTRY} as entry
seconds = time.perf_counter() - start
response = entry.handler(json.load(sys.stdin), None)
# Python's own modules have no file or lie in its library.
files = sorted(m.__file__ for m in sys.modules.values() if (getattr(m, "__file__", None) or "").startswith(sys.argv[1]))
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
json.dump({{"seconds": seconds, "resident": resident, "response": response, "files": files}}, sys.stdout)
"""


@final
class RootSize(NamedTuple):
    """How much a root holds.

    Attributes:
        files: how many.
        nbytes: bytes of all.
        parts: bytes by top-level folder or file, largest first.
    """

    files: int
    nbytes: int
    parts: dict[str, int]


@final
class StartMeasurement(NamedTuple):
    """What a fresh interpreter did with a root.

    Attributes:
        seconds: to import the entry point, XLA started.
        resident_bytes: the process's peak.
        response: to a warm invocation.
        files: of the modules that were imported from the root, relative to it.
    """

    seconds: float
    resident_bytes: int
    response: dict[str, object]
    files: tuple[str, ...]


def build(context: Context, root: Path) -> Path:
    """Makes the image's own files in a folder that is empty or does not exist.

    Returns:
        The folder in it that Python imports from.

    Raises:
        InputError: the folder is not empty.
        RunError: a distribution was not installed from a wheel.
    """
    make_empty(root)
    target = root / FOLDER
    for place, content in context.files.items():
        if place.startswith("dorylax/"):
            _write(target / place, content)
    for name in context.distributions:
        _copy(name, target)
    subprocess.run([sys.executable, "-I", *COMPILE, str(target)], check=True, stdout=subprocess.DEVNULL)
    return target


def size(target: Path) -> RootSize:
    """How much a root holds."""
    parts: dict[str, int] = {}
    count = 0
    for path in sorted(target.rglob("*")):
        if path.is_file():
            count += 1
            part = path.relative_to(target).parts[0]
            parts[part] = parts.get(part, 0) + path.stat().st_size
    return RootSize(count, sum(parts.values()), dict(sorted(parts.items(), key=lambda entry: -entry[1])))


def start(target: Path, invocation: bytes) -> StartMeasurement:
    """Has a fresh interpreter that sees nothing else import the entry point and answer an invocation.

    Args:
        target: from `build`.
        invocation: `Invocation`, encoded.

    Raises:
        RunError: it cannot be imported, or does not answer.
    """
    # As on Lambda: no home directory, nothing written, no site-packages.
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", _PROBE, str(target.absolute())],
        input=invocation,
        env=environment,
        cwd="/",
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RunError(f"the entry point does not start from {target}: {''.join(last)}")
    answer = json.loads(done.stdout)
    files = tuple(Path(file).relative_to(target.absolute()).as_posix() for file in answer["files"])
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return StartMeasurement(answer["seconds"], unit * answer["resident"], answer["response"], files)


def _copy(name: str, target: Path) -> None:
    files = importlib.metadata.distribution(name).files
    if not files:
        raise RunError(
            f"{name} was not installed from a wheel, and does not say what it consists of: install it by pip"
        )
    for file in files:
        # Scripts lie outside of the folder of packages.
        if ".." not in file.parts and not left_out(file.parts):
            path = target / file
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), path)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
