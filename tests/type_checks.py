"""The run-time check of annotations that tests/conftest.py has made of every function of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype

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
