"""The run-time check of annotations that tests/conftest.py has made of every function of the package."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

_with_shapes = jaxtyping.jaxtyped
_without_shapes = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
_of_inner: dict[Any, Callable[..., Any]] = {}


def checked(function: Any) -> Any:
    """`beartype`, but the check of a function inside a function is compiled once, not whenever the outer one is called.

    jaxtyping passes a stub without a body of its own, whose code and annotations are all that matters: compiling took
    more of a pipeline's time than everything else.
    """
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return beartype(function)
    # The name and the module are in the check's messages.
    key = (function.__module__, function.__qualname__, function.__code__, *function.__annotations__.items())
    try:
        found = _of_inner.get(key)
    except TypeError:  # an annotation without a hash
        return beartype(function)
    if found is None:
        found = _of_inner[key] = beartype(function)
    return found


def jaxtyped(thing: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyping.jaxtyped`, but functions without shapes in their annotations are checked by beartype alone.

    jaxtyping binds the arguments of each call, and checks them twice: a third of a pipeline's time, where most are small.
    """
    if thing is None:
        return lambda found: jaxtyped(found, typechecker=typechecker)
    if isinstance(thing, types.FunctionType) and "<locals>" not in thing.__qualname__:
        try:
            if not any(_has_shapes(hint) for hint in get_type_hints(thing, include_extras=True).values()):
                return _without_shapes(thing)
        except Exception:  # what only type checkers import: jaxtyping checks the other annotations
            pass
    return _with_shapes(thing, typechecker=typechecker)


def _has_shapes(hint: Any) -> bool:
    if type(hint).__module__.startswith("jaxtyping"):
        return True
    return any(_has_shapes(part) for part in (hint if isinstance(hint, list) else get_args(hint)))


def install(modules: list[str]) -> None:
    """Has every function of these modules checked, of those that are imported from now on."""
    # The name that the hook writes above each function.
    jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, "type_checks.checked")
