"""Calls, loops and branches."""

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


def test_scan_over_another_axis(rows: Any):
    fun = lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros_like(x[:, 0]), x.T)  # noqa: E731
    assert rows.results(fun, X) == [V, Rows("vertex", 1)]
    assert rows.results(fun, (Rows("vertex", 0, 2), ("2*n", 6))) == [Rows("vertex", 0, 2), Rows("vertex", 1, 2)]


def test_scan_over_rows(rows: Any):
    with pytest.raises(RowError, match="scan over the vertex axis"):
        rows.results(lambda x: lax.scan(lambda c, r: (c + r, None), jnp.zeros(6), x)[0], X)
    with pytest.raises(RowError, match="scan over the edge axis"):
        rows.results(lambda a: lax.scan(lambda c, r: (c, r), 0.0, a)[1], (Rows("edge", 0, 2), ("2*e",)))


def test_sums_carried_by_a_scan(rows: Any):
    def total(start: Any, step: Any) -> Any:
        return lambda x: lax.scan(lambda c, _: (step(c, x), c), jnp.full(6, start), None, length=3)

    add = lambda c, x: c * 2 + x.sum(0)  # noqa: E731
    assert rows.results(total(0.0, add), X) == [SUM, SUM]
    with pytest.raises(RowError, match="counted once per part"):
        rows.results(total(1.0, add), X)
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(total(0.0, lambda c, x: c * c + x.sum(0)), X)
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(total(0.0, lambda c, x: (x * c).sum(0) + x.sum(0)), X)


def test_a_zero_that_does_not_stay_zero(rows: Any):
    # The first carry is zero after one step, the second no longer after two: a sum may not be added to it.
    def fun(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            first, second, total = carry
            return (first + 1.0, first, total + second), None

        return lax.scan(step, (jnp.zeros(6), jnp.zeros(6), x.sum(0)), None, length=3)[0]

    with pytest.raises(RowError, match="counted once per part"):
        rows.results(fun, X)
    steady = lambda x: lax.scan(lambda c, _: ((c[0], c[1] + c[0]), None), (jnp.zeros(6), x.sum(0)), None, length=3)[0]  # noqa: E731
    assert rows.results(steady, X) == [FREE, SUM]


def test_while(rows: Any):
    def fun(x: Any, p: Any) -> Any:
        return lax.while_loop(lambda c: c[1].sum() < 3, lambda c: (c[0] * 2, c[1] + 1), (x, p))

    assert rows.results(fun, X, (FREE, (6,))) == [V, FREE]
    assert rows.results(
        lambda x: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2, c[1] + 1), (x.sum(0), 0)), X
    ) == [SUM, FREE]


def test_while_with_a_condition_of_each_row(rows: Any):
    def own(r: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, r)

    assert rows.results(jax.vmap(own), X) == [V]
    # A value carried on another axis would stop with the wrong row.
    moved = jax.vmap(jax.vmap(own), in_axes=1)
    assert rows.results(moved, (V, ("n", 2, 6))) == [Rows("vertex", 1)]


def test_while_whose_rows_would_stop_something_else(rows: Any):
    def fun(x: Any, p: Any) -> Any:
        cond = jax.make_jaxpr(lambda x, p: x[:, 0] < 3)(x, p)
        body = jax.make_jaxpr(lambda x, p: (x * 2, p + 1))(x, p)
        return lax.while_p.bind(x, p, cond_nconsts=0, cond_jaxpr=cond, body_nconsts=0, body_jaxpr=body)

    with pytest.raises(RowError, match="a loop whose condition has rows"):
        rows.results(fun, X, (FREE, (6,)))


def test_cond(rows: Any):
    def branch(first: Any, second: Any) -> Any:
        return lambda x, p: lax.cond(p > 0, first, second, x)

    p = (FREE, ())
    assert rows.results(branch(jnp.sin, jnp.cos), X, p) == [V]
    assert rows.results(branch(lambda x: x.sum(0), lambda x: jnp.zeros(6)), X, p) == [SUM]
    assert rows.results(branch(lambda x: jnp.zeros(6), lambda x: x.sum(0)), X, p) == [SUM]
    with pytest.raises(RowError, match="counted once per part"):
        rows.results(branch(lambda x: x.sum(0), lambda x: jnp.ones(6)), X, p)
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(branch(jnp.sin, lambda x: x - x.sum(0)), X, p)
    with pytest.raises(RowError):
        rows.results(lambda x, s: lax.switch(s, [jnp.sin, jnp.cos], x), X, (SUM, ()), dtype=jnp.int32)


def test_zeros_of_all_branches(rows: Any):
    def fun(x: Any, p: Any, one: float) -> Any:
        return x.sum(0) + lax.cond(p > 0, lambda: jnp.zeros(6), lambda: jnp.zeros(6) + one)

    with pytest.raises(RowError, match="counted once per part"):
        rows.results(lambda x, p: fun(x, p, 1.0), X, (FREE, ()))


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
    with pytest.raises(RowError, match=r"at test_control\.py:\d+ \(test_places"):
        rows.results(lambda x: jnp.sort(x, axis=0), X)


def test_sums_taken_in_a_call_are_placed(rows: Any):
    with pytest.raises(RowError, match=r"^combines .*: reduction .*at test_control\.py:\d+ \(test_sums"):
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
