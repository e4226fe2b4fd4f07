"""Contents of the function's image: the modules imported by its entry point, and its distributions with their hashes.

A lock lists a SHA-256 for each wheel, so that an index cannot substitute a file. It is a file in pip's format of
requirements, `NAME==VERSION --hash=sha256:…`, with a hash for each platform's wheel and no addresses. One comes with
dorylax, for the versions of `constraints.txt`; `dorylax aws lock` writes others.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, final

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.settings import Architecture
from dorylax.settings.strict_yaml import read_text

ENTRY = "dorylax.serverless.function.entry"
HANDLER = f"{ENTRY}.handler"

DISTRIBUTIONS = (
    "awslambdaric",
    "flatbuffers",  # undeclared dependency of jax.export
    "jax",
    "jaxlib",
    "ml_dtypes",
    "numpy",
    "opt_einsum",
    "pyzmq",
    "simplejson",  # this and the next are dependencies of awslambdaric
    "snapshot-restore-py",
)
"""Installed distributions. SciPy is excluded: JAX declares it, but imports it only for LAPACK."""

LAPACK = "scipy"

LEFT_OUT_FOLDERS = ("tests", "include", "__pycache__")
LEFT_OUT_SUFFIXES = (".pyi", ".pxd", ".h", ".a")
"""File suffixes excluded from the image. Like `LEFT_OUT_FOLDERS`, these files are never imported at run time."""

PACKAGED = Path(__file__).with_name("wheels.txt")
"""The lock that comes with dorylax."""

Lock = Mapping[str, frozenset[str]]
"""Hashes, in hexadecimal, of the wheels of each `NAME==VERSION`."""

_TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_WHEELS: dict[Architecture, str] = {"x86_64": "x86_64", "arm64": "aarch64"}
# Versions from the glibc of the oldest wheels to Debian 11's. pip does not infer older ones.
_GLIBC = range(17, 32)
_LINE = re.compile(r"(?P<pin>[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)")
_PIP_SECONDS = 600.0


@final
class Closure(NamedTuple):
    """Transitive imports of an entry point, including those inside functions.

    Attributes:
        modules: Source files of the entry point's package by their path in the image, sorted.
        foreign: Top-level names of third-party packages, sorted.
    """

    modules: dict[str, Path]
    foreign: tuple[str, ...]


def closure(entry: str = ENTRY) -> Closure:
    """Collect the transitive imports of a module by parsing its source, without running it.

    Imports inside functions count; imports under `TYPE_CHECKING` do not.

    Raises:
        RunError: If the source of the entry point cannot be found.
    """
    modules: dict[str, Path] = {}
    foreign: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name.partition(".")[0] != entry.partition(".")[0]:
            foreign.add(name.partition(".")[0])
            continue
        path = _source(name)
        if path is None:  # an attribute of a module
            continue
        parent = name.rpartition(".")[0]
        package = name if path.name == "__init__.py" else parent
        place = "/".join([*package.split("."), path.name])
        if place not in modules:
            modules[place] = path
            waiting += [parent] if parent else []
            waiting += _imports(ast.parse(path.read_text("utf-8")), package)
    if not modules:
        raise RunError(f"{entry} has no source file: install dorylax as a folder, not as an archive")
    return Closure(dict(sorted(modules.items())), tuple(sorted(foreign - sys.stdlib_module_names)))


def _source(name: str) -> Path | None:
    """Find a module's file. `importlib.util.find_spec` alone would run the packages above it."""
    parts = name.split(".")
    found = importlib.util.find_spec(parts[0])
    for depth in range(2, len(parts) + 1):
        if found is None or found.submodule_search_locations is None:
            return None
        found = importlib.machinery.PathFinder.find_spec(".".join(parts[:depth]), found.submodule_search_locations)
    return None if found is None or found.origin is None else Path(found.origin)


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in _TYPE_CHECKING:
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            origin = importlib.util.resolve_name(base, package)
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))
        nodes += ast.iter_child_nodes(node)


def left_out(parts: Sequence[str]) -> bool:
    """Return whether the image excludes a distribution's file, given the parts of its path."""
    return bool(set(parts[:-1]) & set(LEFT_OUT_FOLDERS)) or parts[-1].endswith(LEFT_OUT_SUFFIXES)


def requirements(*, lapack: bool) -> tuple[str, ...]:
    """List the distributions of the image as `name==version`, sorted, in the versions installed here.

    Args:
        lapack: Whether to include SciPy.

    Raises:
        InputError: If a distribution is not installed.
    """
    return tuple(f"{name}=={_version(name)}" for name in sorted((*DISTRIBUTIONS, *([LAPACK] if lapack else []))))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = (
            'pip install "dorylax[aws]"' if sys.platform == "linux" else "deploy from Linux, for which alone it is made"
        )
        raise InputError(f"{name} is not installed: {remedy}") from None


def wheel_options(architecture: Architecture, python: tuple[int, int]) -> list[str]:
    """Return pip's options to choose wheels for a function, independent of the machine that runs pip.

    Args:
        architecture: Processor architecture of the function.
        python: Major and minor version of Python.
    """
    platforms = [f"manylinux2014_{_WHEELS[architecture]}"]
    platforms += [f"manylinux_2_{glibc}_{_WHEELS[architecture]}" for glibc in _GLIBC]
    abis = (f"cp{python[0]}{python[1]}", "abi3", "none")
    return [
        "--no-deps",
        "--only-binary=:all:",
        f"--python-version={python[0]}.{python[1]}",
        "--implementation=cp",
        *(f"--abi={abi}" for abi in abis),
        *(f"--platform={platform}" for platform in reversed(platforms)),
    ]


def read_lock(file: Path) -> Lock:
    """Read a lock.

    Raises:
        InputError: If a line does not belong in a lock, or the file does not exist or is not text.
        OSError: If the file cannot be read.
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


def locked(pins: Iterable[str], lock: Lock) -> Lock:
    """Return the part of a lock for some `NAME==VERSION`, in their order.

    Raises:
        InputError: If the lock lacks one of them.
    """
    wanted = tuple(pins)
    if missing := [pin for pin in wanted if pin not in lock]:
        raise InputError(
            f"the lock has no hashes of {', '.join(missing)}: run `dorylax aws lock FILE` and give --lock FILE"
        )
    return {pin: lock[pin] for pin in wanted}


def lock_text(lock: Lock) -> str:
    """Format a lock as a file."""
    lines = (" ".join((pin, *(f"--hash=sha256:{one}" for one in sorted(lock[pin])))) for pin in sorted(lock))
    return "".join(f"{line}\n" for line in lines)


def make_lock(
    pins: Sequence[str], pythons: Iterable[tuple[int, int]], ask: Callable[[Sequence[str]], bytes] | None = None
) -> Lock:
    """Ask pip's index for the hashes of the wheels for Lambda's processors.

    Args:
        pins: `NAME==VERSION` of each distribution.
        pythons: Major and minor versions of Python.
        ask: Function that runs pip with options and returns its report of the planned installation (default: the pip of this
            interpreter).

    Raises:
        RunError: If pip finds no wheel, or its index gives no hashes.
    """
    ask = ask or _ask_pip
    lock: dict[str, set[str]] = {pin: set() for pin in pins}
    for python in pythons:
        for architecture in _WHEELS:
            report = json.loads(ask([*wheel_options(architecture, python), *pins]))
            found = {_normal(entry["metadata"]["name"]): entry["download_info"] for entry in report["install"]}
            for pin, hashes in lock.items():
                archive = found.get(_normal(pin.partition("==")[0]), {}).get("archive_info", {})
                sha256 = archive.get("hashes", {}).get("sha256")
                if sha256 is None:
                    raise RunError(f"pip's index gives no SHA-256 of the wheel of {pin} for {architecture}")
                hashes.add(sha256)
    return {pin: frozenset(hashes) for pin, hashes in lock.items()}


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
            timeout=_PIP_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            errors = [" ".join(line.split()) for line in done.stderr.decode(errors="replace").splitlines()]
            last = next((line for line in reversed(errors) if line.startswith("ERROR")), "".join(errors[-1:]))
            raise RunError(f"pip cannot look up the image's wheels: {last or done.returncode}")
        return report.read_bytes()
