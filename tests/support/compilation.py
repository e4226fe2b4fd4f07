"""How tests compile: without XLA's costly optimisations, which programs that run once or twice never pay back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
from jax._src import compiler

_VARIABLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def quickly() -> None:
    """For the whole session, here and in the processes that tests start."""
    os.environ[_VARIABLE] = "1"
    jax.config.update("jax_disable_most_optimizations", True)


@contextlib.contextmanager
def as_users_do() -> Iterator[None]:
    """With all optimisations, for tests of what XLA makes of a function."""
    del os.environ[_VARIABLE]
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        quickly()


@contextlib.contextmanager
def with_plain_loops() -> Iterator[None]:
    """In this process, without XLA's fusion emitters, for tests that go operation by operation.

    The emitters take half of the time for an operation on its own, in which nothing is to be fused. JAX has no setting for
    them outside a `jax.jit`; `XLA_FLAGS` would be for the whole process.
    """
    plainly: Any = compiler.get_compile_options

    def options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **others: Any) -> Any:
        overrides = {"xla_cpu_use_fusion_emitters": False, **(env_options_overrides or {})}
        return plainly(*args, env_options_overrides=overrides, **others)

    with mock.patch.object(compiler, "get_compile_options", options):
        yield
