"""Root file system of the image, built in an empty folder without a container engine or a network.

Distributions are copied from this installation, so the root only runs on this machine's architecture.
"""

from __future__ import annotations

import collections
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
from dorylax.serverless.deploy.image.context import COMPILE, FOLDER, Context, make_empty

_SECONDS = 300.0

# Runs with only the image's files on the import path. The invocation contains keys, so it arrives on standard input.
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
    """Size of a root.

    Attributes:
        files: Number of files.
        nbytes: Total size in bytes.
        parts: Bytes by top-level folder or file, largest first.
    """

    files: int
    nbytes: int
    parts: dict[str, int]


@final
class StartMeasurement(NamedTuple):
    """Measurement of a cold start from a root in a fresh interpreter.

    Attributes:
        seconds: Time to import the entry point, including the start of XLA, in seconds.
        resident_bytes: Peak resident memory of the process in bytes.
        response: Response to the invocation.
        files: Files of the modules imported from the root, relative to the root.
    """

    seconds: float
    resident_bytes: int
    response: dict[str, object]
    files: tuple[str, ...]


def build(context: Context, root: Path) -> Path:
    """Write the image's files to an empty or new folder.

    Returns:
        Subfolder that Python imports from.

    Raises:
        InputError: If the folder is not empty.
        RunError: If a distribution was not installed from a wheel.
    """
    make_empty(root)
    target = root / FOLDER
    context.write(target, under="dorylax/")
    for name in context.distributions:
        _copy(name, target)
    subprocess.run([sys.executable, "-I", *COMPILE, str(target)], check=True, stdout=subprocess.DEVNULL)
    return target


def size(target: Path) -> RootSize:
    """Measure the size of a root."""
    files = [path for path in target.rglob("*") if path.is_file()]
    parts: collections.Counter[str] = collections.Counter()
    for path in files:
        parts[path.relative_to(target).parts[0]] += path.stat().st_size
    return RootSize(len(files), parts.total(), dict(parts.most_common()))


def start(target: Path, invocation: bytes) -> StartMeasurement:
    """Import the entry point in a fresh, isolated interpreter and run one invocation.

    Args:
        target: Folder returned by `build`.
        invocation: Encoded `Invocation`.

    Raises:
        RunError: If the import or the invocation fails.
    """
    # Like Lambda: no home directory, no writes, no site-packages.
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
        # Skip scripts, which are installed outside site-packages.
        if ".." not in file.parts and not left_out(file.parts):
            path = target / file
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), path)
