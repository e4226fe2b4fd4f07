"""Every error of the package is a `DorylaxError`, and the built-in that it is a case of."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import dorylax
from dorylax import DorylaxError

# In a checkout three lie beside the package's own folders; in an installed package one is the native kernel.
_NO_MODULES = {"dorylax.benchmarks", "dorylax.dorylax", "dorylax.tests", "dorylax.ops.libdorylax_ops"}
# What is caught again before it reaches a user: a built-in would say nothing more.
_CAUGHT = {"CommandError", "DataError", "LostError", "NotOfferedError", "TaskFailedError", "TaskThrottledError"}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if entry.name in _NO_MODULES or entry.name.endswith(".__main__"):
            continue
        module = importlib.import_module(entry.name)
        yield module
        if entry.ispkg:
            yield from _modules(module)


def test_all_errors_have_one_base_and_are_built_ins_too() -> None:
    errors = {
        value
        for module in _modules(dorylax)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Exception) and not issubclass(value, Warning)
        if value.__module__.startswith("dorylax.")
    }
    assert len(errors) > 40
    assert [error for error in errors if not issubclass(error, DorylaxError)] == []
    general = {Exception, BaseException, object}
    plain = {
        error.__name__ for error in errors if {one for one in error.__mro__ if one.__module__ == "builtins"} == general
    }
    assert {name for name in plain if not name.startswith("_")} == {"DorylaxError", *_CAUGHT}
