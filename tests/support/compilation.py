"""Compiling in half the time, for tests of many small functions that run once or twice each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
from jax._src import compiler


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """In this process, XLA without its costly optimisations, and with plain loops instead of its fusion emitters.

    The latter take half of the time for an operation on its own, in which nothing is to be fused. JAX has no setting for
    them outside a `jax.jit`; `XLA_FLAGS` would be for the whole process.
    """
    plainly: Any = compiler.get_compile_options
    before = jax.config.read("jax_disable_most_optimizations")

    def with_plain_loops(*args: Any, env_options_overrides: dict[str, Any] | None = None, **options: Any) -> Any:
        overrides = {"xla_cpu_use_fusion_emitters": False, **(env_options_overrides or {})}
        return plainly(*args, env_options_overrides=overrides, **options)

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        with mock.patch.object(compiler, "get_compile_options", with_plain_loops):
            yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
