"""Which wheels the image may hold: a SHA-256 for each file, so that an index cannot substitute a file.

A lock is a file in pip's format of requirements, `NAME==VERSION --hash=sha256:…`, with a hash for each platform's wheel and
no addresses. One comes with dorylax, for the versions of `constraints.txt`; `dorylax aws lock` writes others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image.dockerfile import PLATFORMS, wheel_options
from dorylax.settings.strict_yaml import read_text

PACKAGED = Path(__file__).with_name("wheels.txt")
"""The lock that comes with dorylax."""

Lock = Mapping[str, frozenset[str]]
"""Hashes, in hexadecimal, of the wheels of each `NAME==VERSION`."""

_LINE = re.compile(r"(?P<pin>[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)")
_SECONDS = 600.0


def read_lock(file: Path) -> Lock:
    """The lock in a file.

    Raises:
        InputError: a line is not one of a lock.
        ConfigError: there is no such file, or it is no text.
        OSError: the file cannot be read.
    """
    lock: dict[str, frozenset[str]] = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        if found is None:
            raise InputError(f"{file}:{number}: must be NAME==VERSION --hash=sha256:…, got {text!r}")
        hashes = frozenset(found["hashes"].split(" --hash=sha256:")[1:])
        lock[found["pin"]] = lock.get(found["pin"], frozenset()) | hashes
    return lock


def locked(pins: Iterable[str], lock: Lock) -> tuple[str, ...]:
    """A lock's lines for some `NAME==VERSION`.

    Raises:
        InputError: the lock lacks one of them.
    """
    wanted = tuple(pins)
    if missing := [pin for pin in wanted if pin not in lock]:
        raise InputError(
            f"the lock has no hashes of {', '.join(missing)}: run `dorylax aws lock FILE` and give --lock FILE"
        )
    return tuple(_line(pin, lock[pin]) for pin in wanted)


def make_lock(
    pins: Sequence[str], pythons: Iterable[tuple[int, int]], ask: Callable[[Sequence[str]], bytes] | None = None
) -> Lock:
    """Asks pip's index for the hashes of the wheels for Lambda's processors.

    Args:
        pins: `NAME==VERSION` of each.
        pythons: minor versions of Python.
        ask: Runs pip with options and returns its report of the planned installation (default: this interpreter's pip).

    Raises:
        RunError: pip finds no wheel, or its index gives no hashes.
    """
    ask = ask or _ask_pip
    lock: dict[str, set[str]] = {pin: set() for pin in pins}
    for python in pythons:
        for architecture in PLATFORMS:
            report = json.loads(ask([*wheel_options(architecture, python), *pins]))
            found = {_normal(entry["metadata"]["name"]): entry["download_info"] for entry in report["install"]}
            for pin, hashes in lock.items():
                archive = found.get(_normal(pin.partition("==")[0]), {}).get("archive_info", {})
                sha256 = archive.get("hashes", {}).get("sha256")
                if sha256 is None:
                    raise RunError(f"pip's index gives no SHA-256 of the wheel of {pin} for {architecture}")
                hashes.add(sha256)
    return {pin: frozenset(hashes) for pin, hashes in lock.items()}


def lock_text(lock: Lock) -> str:
    """A lock as a file."""
    return "".join(f"{_line(pin, hashes)}\n" for pin, hashes in sorted(lock.items()))


def _line(pin: str, hashes: frozenset[str]) -> str:
    return " ".join((pin, *(f"--hash=sha256:{one}" for one in sorted(hashes))))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _ask_pip(options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="dorylax-lock-") as folder:
        report = Path(folder) / "report.json"
        # Only looked up, not installed: --target has to be there for wheels of other platforms.
        words = ["--dry-run", "--ignore-installed", "--quiet", f"--target={folder}/none", f"--report={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *words, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            errors = [" ".join(line.split()) for line in done.stderr.decode(errors="replace").splitlines()]
            last = next((line for line in reversed(errors) if line.startswith("ERROR")), "".join(errors[-1:]))
            raise RunError(f"pip cannot look up the image's wheels: {last or done.returncode}")
        return report.read_bytes()
