"""What the function's image holds: the modules that its entry point imports, and the distributions that those need."""

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
    "flatbuffers",  # of jax.export, which does not name it
    "jax",
    "jaxlib",
    "ml_dtypes",
    "numpy",
    "opt_einsum",
    "pyzmq",
    "simplejson",  # of awslambdaric, as is the next
    "snapshot-restore-py",
)
"""All that is installed. JAX names SciPy too, and imports it for LAPACK alone."""

LAPACK = "scipy"

LEFT_OUT_FOLDERS = ("tests", "include", "__pycache__")
LEFT_OUT_SUFFIXES = (".pyi", ".pxd", ".h", ".a")
"""Parts of distributions that nothing imports when a program runs."""


@final
class Closure(NamedTuple):
    """What an entry point imports, whenever it does.

    Attributes:
        modules: its own package's files, by their path in the image; sorted.
        foreign: top-level names of other packages, without Python's own; sorted.
    """

    modules: dict[str, Path]
    foreign: tuple[str, ...]


def closure(entry: str = ENTRY) -> Closure:
    """What a module imports, directly or not, read off its source: nothing is run.

    Imports inside functions count, those for type checkers do not.

    Raises:
        RunError: a module has no source file.
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
        if found is None:  # a name in a module, not a module
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
    """The distributions of the image as `name==version`, in the versions that are installed here; sorted.

    Args:
        lapack: with SciPy.

    Raises:
        InputError: one is not installed.
    """
    return tuple(f"{name}=={_version(name)}" for name in distributions(lapack=lapack))


def distributions(*, lapack: bool) -> tuple[str, ...]:
    """Names of the distributions of the image."""
    return tuple(sorted((*DISTRIBUTIONS, LAPACK) if lapack else DISTRIBUTIONS))


def left_out(parts: Sequence[str]) -> bool:
    """Whether a file of a distribution is left out, by the parts of its path."""
    return bool(set(parts[:-1]) & set(LEFT_OUT_FOLDERS)) or parts[-1].endswith(LEFT_OUT_SUFFIXES)


class _Source(NamedTuple):
    path: Path
    place: str


def _folders() -> list[str]:
    """Where the package lies. Its root, which names everything in it, is not imported for that."""
    package = importlib.util.find_spec("dorylax")
    assert package is not None
    return list(package.submodule_search_locations or ())


def _source(name: str) -> _Source | None:
    """A module's file; in a checkout the package lies in several folders."""
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
    """All nodes but those that only type checkers see."""
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
