"""Calls of functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()

X = (V, ("n", 6))


@jax.custom_jvp
def _with_jvp(x: Any) -> Any:
    return x - x.max(0)


_with_jvp.defjvp(lambda primals, tangents: (_with_jvp(*primals), tangents[0]))


@jax.custom_vjp
def _mixes_in_its_gradient(x: Any) -> Any:
    return jnp.sin(x)


_mixes_in_its_gradient.defvjp(lambda x: (jnp.sin(x), None), lambda _, g: (g - g.max(0),))


@pytest.mark.parametrize("call", [jax.jit, jax.checkpoint, jax.vmap, lambda f: lax.composite(f, "test.f")])
def test_bodies_are_checked(rows: Any, call: Any):
    assert rows.results(call(jnp.sin), X) == [V]
    if call is not jax.vmap:
        with pytest.raises(RowError):
            rows.results(call(lambda x: x * jnp.sum(x)), X)


def test_places_are_those_of_the_call(rows: Any):
    with pytest.raises(RowError, match=r"at test_calls\.py:\d+ \(test_places"):
        rows.results(lambda x: jnp.sort(x, axis=0), X)


def test_sums_taken_in_a_call_are_placed(rows: Any):
    with pytest.raises(RowError, match=r"^combines .*: reduction .*at test_calls\.py:\d+ \(test_sums"):
        rows.results(lambda x: x - jnp.linalg.norm(x), X)


def test_custom_derivatives(rows: Any):
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(_with_jvp, X)
    assert rows.results(_mixes_in_its_gradient, X) == [V]
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(jax.grad(lambda x: _mixes_in_its_gradient(x).sum()), X)


def test_linear_solve(rows: Any):
    solve = jnp.linalg.solve
    assert rows.results(solve, (V, ("n", 3, 3)), (V, ("n", 3, 2))) == [V]
    with pytest.raises(RowError):
        rows.results(lambda x, p: jnp.linalg.solve(x.T @ x, p), X, (FREE, (6, 1)))
