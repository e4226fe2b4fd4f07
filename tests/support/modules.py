"""The modules of the package, by name, whether it is installed or lies in a checkout."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dorylax

# In a checkout three lie beside the package's own folders; in an installed package one is a native library.
_NO_MODULES = {
    *("dorylax.benchmarks", "dorylax.dorylax", "dorylax.tests"),
    "dorylax.ops.libdorylax_ops",
}


def names(package: ModuleType = dorylax) -> Iterator[str]:
    """All modules below a package, packages among them. Packages are imported, other modules are not."""
    for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if entry.name in _NO_MODULES:
            continue
        yield entry.name
        if entry.ispkg:
            yield from names(importlib.import_module(entry.name))


def source_of(name: str) -> str:
    """The source text of a module."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
