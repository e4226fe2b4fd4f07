"""Jitted functions compiled ahead of time, so that the time it takes is known and happens once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import jax

from dorylax.jax_internals import debugged, jit
from dorylax.program.model.base import signature


@final
class Compiled:
    """A jitted function, compiled ahead of time once per argument shapes so that its compile time is known."""

    def __init__(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> None:
        self._function = function
        self._jitted = jax.jit(function, donate_argnums=donate)
        self._executables: dict[Any, Callable[..., Any]] = {}

    def shapes(self, *args: Any) -> Any:
        """Abstract results for arguments of these shapes, without compilation."""
        return jax.eval_shape(self._function, *args)

    def prepare(self, *args: Any) -> tuple[Callable[..., Any], float]:
        """The executable for arguments of these shapes, and the seconds spent compiling it now (0 if it was cached).

        Under `jax_disable_jit` and `jax_debug_nans`, JAX runs the function operation by operation, always or after a NaN.
        It is then not compiled ahead of time and donates no arguments.
        """
        if debugged():
            return jit(self._function), 0.0
        key = signature(args)
        if key in self._executables:
            return self._executables[key], 0.0
        begin = time.perf_counter()
        self._executables[key] = self._jitted.lower(*args).compile()
        return self._executables[key], time.perf_counter() - begin
