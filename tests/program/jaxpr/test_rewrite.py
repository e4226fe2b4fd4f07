"""Simplified jaxprs, and jaxprs of definite sizes, compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.jaxpr.rewrite import instantiate, simplify
from dorylax.program.jaxpr.symbols import new_dimensions
from dorylax.program.tracing.flatten import RowNumbers, flatten

FOUR = np.linspace(-1, 1, 4, dtype=np.float32)


def flat(fun: Any) -> ClosedJaxpr:
    return flatten(make_jaxpr_of(fun, FOUR), custom=True)


def names(closed: ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def test_repeats_merge_through_each_other() -> None:
    closed = flat(lambda x: (jnp.sin(x * 2.0), jnp.sin(x * 2.0) + 1.0))
    simple = simplify(closed)
    assert names(simple) == ["mul", "sin", "add"]
    for a, b in zip(*(eval_jaxpr(one.jaxpr, one.consts, FOUR) for one in (simple, closed)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_differs_stays() -> None:
    # Other literals, another order of operands, other parameters, another sign of zero.
    simple = simplify(flat(lambda x: (x * 2.0, x * 3.0, x - 2.0, 2.0 - x, x.reshape(2, 2), x.reshape(4, 1))))
    assert names(simple) == ["mul", "mul", "sub", "sub", "reshape", "reshape"]
    assert names(simplify(flat(lambda x: (jax.lax.cumsum(x), jax.lax.cumsum(x, reverse=True))))) == ["cumsum"] * 2
    assert names(simplify(flat(lambda x: (x * 0.0, x * -0.0)))) == ["mul"] * 2


V = 5
X = np.random.default_rng(0).normal(size=(V, 3)).astype(np.float32)


INPUTS = (np.arange(V, dtype=np.int32), np.zeros(0, np.int32), np.int32(V), np.int32(0), X)


def symbolic(fun: Callable[..., Any]) -> ClosedJaxpr:
    """As in a program: flat, with numbers of rows as inputs."""
    n, e = new_dimensions()
    specs = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((n,), (e,), (), ())]
    closed = make_jaxpr_of(lambda *inputs: fun(inputs[4]), *specs, jax.ShapeDtypeStruct((n, 3), jnp.float32))
    row_numbers = RowNumbers(numbers={"vertex": 0, "edge": 1}, counts={"vertex": 2, "edge": 3})
    return flatten(closed, custom=True, row_numbers=row_numbers)


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda h, row: (h + row, (h * x).sum(0)), jnp.zeros(3), x, reverse=True)


def looped(x: Any) -> Any:
    return jax.lax.while_loop(lambda h: h.sum() > 3, lambda h: h / 2 - jnp.ones(x.shape), x * 100)


def branched(x: Any) -> Any:
    def half(y: Any) -> Any:
        return jax.lax.slice_in_dim(jnp.concatenate([y, y]), 0, y.shape[0])

    return jax.lax.cond(x[0, 0] > 9, jnp.zeros_like, half, x)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: x[jnp.arange(3)[::-1], jnp.array([0, 2, 1])],
        lambda x: jnp.take(x, jnp.array([0, -1]), axis=0, mode="fill"),
        lambda x: jnp.asarray(x).at[1, 2].set(7.0),
        lambda x: jnp.broadcast_to(x[:, None, :], (x.shape[0], 2, 3)).reshape(x.shape[0] * 2, 3),
        lambda x: jnp.pad(x, ((0, 0), (1, 2)))[:, 1:],
        lambda x: jax.lax.slice_in_dim(jnp.concatenate([x, x]), 0, 2 * x.shape[0], 2),
        lambda x: jnp.asarray(x.shape[0]) * jnp.sort(x, axis=0),
        jax.vmap(lambda row: jnp.outer(row, row)),
        jax.nn.relu,
        scanned,
        looped,
        branched,
    ],
)
def test_the_function_is_that_of_numbers(fun: Callable[..., Any]) -> None:
    concrete = instantiate(symbolic(fun), {"n": V, "e": 0})
    assert "n" not in {str(size) for var in concrete.jaxpr.outvars for size in var.aval.shape}
    # Compiled too: shapes that are left inside only show there.
    found = jax.jit(lambda *inputs: eval_jaxpr(concrete.jaxpr, concrete.consts, *inputs))(*INPUTS)
    for a, b in zip(found, jax.tree.leaves(fun(X)), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_symbols_may_become_those_of_another_scope() -> None:
    (m,) = export.symbolic_shape("m")
    closed = symbolic(lambda x: jnp.concatenate([x, x]) @ jnp.ones((3, 2)))
    other = instantiate(closed, {"n": m, "e": 0})
    assert other.jaxpr.invars[4].aval.shape == (m, 3)
    assert other.jaxpr.outvars[0].aval.shape == (2 * m, 2)
    back = instantiate(other, {"m": V})
    assert back.jaxpr.outvars[0].aval.shape == (2 * V, 2)
    assert closed.jaxpr.outvars[0].aval.shape != (2 * V, 2)  # the original stays
