"""Run-time checks of annotations, shapes and dtypes included, on a part of the package that changes with each commit."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._import_hook import _JaxtypingLoader

from support.tiers import Slice

_ROOT = Path(__file__).parents[2]
_ALWAYS = ["dorylax.memory.estimate", "dorylax.ops.row_random"]
"""Modules that are checked in every run, so that a test can see that checks work."""
# Small functions without arrays run a million times in a test, and pydantic checks settings.
_UNCHECKED = ("clock", "cost", "settings", "ray_cluster", "jax_internals", "program", "streaming")
_CHECKED = (
    *(f"dorylax.program.{name}" for name in ("program", "single")),
    *(f"dorylax.program.tracing.{name}" for name in ("arguments", "spec", "trace")),
    *(f"dorylax.streaming.{name}" for name in ("columns", "data", "direct", "executor", "graph_steps")),
    *(f"dorylax.streaming.{name}" for name in ("slice_steps", "spare", "transfers", "units")),
    *(f"pipeline.{name}" for name in ("engine", "plan", "prepare", "saved", "staleness")),
    *("pipeline.parameters.group", "pipeline.parameters.update", "layers.", "experiments."),
    *(f"serverless.{name}" for name in ("backends.", "handler.", "rows", "wire.")),
)

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


def install(part: Slice) -> None:
    """Check every function of this part of the modules, of those that are imported from now on."""
    _JaxtypingLoader.exec_module = _without_cache(_JaxtypingLoader.exec_module)  # type: ignore[method-assign]
    # The name that the hook writes above each function.
    jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
    jaxtyping.install_import_hook([*_ALWAYS, *filter(part.has, checked_modules())], "support.type_checks.checked")


def _without_cache(execute: Callable[..., None]) -> Callable[..., None]:
    """Keep jaxtyping from caching the modules that a checked module imports as if they were checked too."""

    def uncached(loader: Any, module: types.ModuleType) -> None:
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            execute(loader, module)
        finally:
            sys.dont_write_bytecode = before

    return uncached


def checked_modules() -> Iterator[str]:
    """Give all modules whose annotations are checked at run time, in one run or another."""
    for folder in ("dorylax", "layers", "pipeline", "serverless", "experiments"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            module = ".".join(parts)
            whole = folder == "dorylax" and parts[1] not in _UNCHECKED
            if parts[-1] != "__init__" and (whole or module.startswith(_CHECKED)):
                yield module if folder == "dorylax" else f"dorylax.{module}"
