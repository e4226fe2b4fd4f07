"""Contents of the function's image: the modules imported by its entry point, and their distributions."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

from dorylax.errors import InputError, RunError

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


@final
class Closure(NamedTuple):
    """Transitive imports of an entry point, including those inside functions.

    Attributes:
        modules: Source files of dorylax by their path in the image, sorted.
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
        if name.partition(".")[0] != "dorylax":
            foreign.add(name.partition(".")[0])
            continue
        found = _source(name)
        if found is None:  # an attribute of a module
            continue
        if found.place in modules:
            continue
        modules[found.place] = found.path
        waiting += [name.rpartition(".")[0]] if "." in name else []
        package = name if found.path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imported(ast.parse(found.path.read_text("utf-8")), package)
    if not modules:
        raise RunError(f"{entry} has no source file: install dorylax as a folder, not as an archive")
    return Closure(dict(sorted(modules.items())), tuple(sorted(foreign - sys.stdlib_module_names)))


def requirements(*, lapack: bool) -> tuple[str, ...]:
    """List the distributions of the image as `name==version`, sorted, in the versions installed here.

    Args:
        lapack: Whether to include SciPy.

    Raises:
        InputError: If a distribution is not installed.
    """
    return tuple(f"{name}=={_version(name)}" for name in distributions(lapack=lapack))


def distributions(*, lapack: bool) -> tuple[str, ...]:
    """Return the sorted names of the distributions of the image."""
    return tuple(sorted((*DISTRIBUTIONS, LAPACK) if lapack else DISTRIBUTIONS))


def left_out(parts: Sequence[str]) -> bool:
    """Return whether the image excludes a distribution's file, given the parts of its path."""
    return bool(set(parts[:-1]) & set(LEFT_OUT_FOLDERS)) or parts[-1].endswith(LEFT_OUT_SUFFIXES)


class _Source(NamedTuple):
    path: Path
    place: str


def _folders() -> list[str]:
    """Return the package's folders without importing its root module."""
    package = importlib.util.find_spec("dorylax")
    assert package is not None
    return list(package.submodule_search_locations or ())


def _source(name: str) -> _Source | None:
    """Find a module's file. In a checkout, the package is spread over several folders."""
    parts = name.split(".")[1:]
    for folder in _folders():
        whole = Path(folder, *parts)
        place = "/".join(["dorylax", *parts])
        if (whole / "__init__.py").is_file():
            return _Source(whole / "__init__.py", f"{place}/__init__.py")
        if parts and whole.with_suffix(".py").is_file():
            return _Source(whole.with_suffix(".py"), f"{place}.py")
    return None


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in _running(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            origin = importlib.util.resolve_name(base, package) if node.level else base
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from _running(other)
            continue
        yield node
        yield from _running(node)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = (
            'pip install "dorylax[aws]"' if sys.platform == "linux" else "deploy from Linux, for which alone it is made"
        )
        raise InputError(f"{name} is not installed: {remedy}") from None
