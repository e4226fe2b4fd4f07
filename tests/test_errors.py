"""Every error of the package is a `DorylaxError`, and the built-in that it is a case of."""

from __future__ import annotations

import importlib
import inspect

from support import modules

from dorylax import DorylaxError

_APART = "dorylax.inference.loader"  # part of what is exported, and runs where dorylax is not


def test_all_errors_have_one_base_and_are_built_ins_too() -> None:
    errors = {
        value
        for name in modules.names()
        if not name.endswith("__main__")
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and issubclass(value, Exception) and not issubclass(value, Warning)
        if value.__module__.startswith("dorylax.") and value.__module__ != _APART
    }
    assert 10 < len(errors) <= 12  # a new class needs a caller that catches it
    assert [error for error in errors if not issubclass(error, DorylaxError)] == []
    general = {Exception, BaseException, object}
    plain = {
        error.__name__ for error in errors if {one for one in error.__mro__ if one.__module__ == "builtins"} == general
    }
    assert {name for name in plain if not name.startswith("_")} == {"DorylaxError"}
