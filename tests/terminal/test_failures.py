"""Exceptions as one line and an exit code."""

from __future__ import annotations

import jax

from dorylax.terminal.failures import explain


def test_what_is_not_ours_is_not_explained() -> None:
    assert explain(ValueError("not ours")) is None


def test_memory_that_xla_does_not_get_is_one_line() -> None:
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore")
    explained = explain(error)
    assert explained is not None
    assert explained.code == 1
    assert explained.line.startswith("this does not fit in memory (Out of memory allocating 8 bytes): lower model.hidd")
    assert explain(jax.errors.JaxRuntimeError("INTERNAL: a bug")) is None
