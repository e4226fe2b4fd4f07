from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.jaxpr.simplify import live, simplify, without_dead, without_repeats
from dorylax.program.tracing.flatten import flatten

X = np.linspace(-1, 1, 4, dtype=np.float32)


def flat(fun: Any) -> ClosedJaxpr:
    return flatten(make_jaxpr_of(fun, X), custom=True)


def names(closed: ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def test_repeats_merge_through_each_other() -> None:
    closed = flat(lambda x: (jnp.sin(x * 2.0), jnp.sin(x * 2.0) + 1.0))
    simple = simplify(closed)
    assert names(simple) == ["mul", "sin", "add"]
    for a, b in zip(*(eval_jaxpr(one.jaxpr, one.consts, X) for one in (simple, closed)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_differs_stays() -> None:
    # Other literals, another order of operands, other parameters, another sign of zero.
    simple = simplify(flat(lambda x: (x * 2.0, x * 3.0, x - 2.0, 2.0 - x, x.reshape(2, 2), x.reshape(4, 1))))
    assert names(simple) == ["mul", "mul", "sub", "sub", "reshape", "reshape"]
    assert names(simplify(flat(lambda x: (jax.lax.cumsum(x), jax.lax.cumsum(x, reverse=True))))) == ["cumsum"] * 2
    assert len(without_repeats(flat(lambda x: (x * 0.0, x * -0.0))).jaxpr.eqns) == 2


def test_dead_equations_and_constants_go() -> None:
    used, unused = np.arange(4, dtype=np.float32), np.ones((4, 4), np.float32)

    def fun(x: Any) -> Any:
        jnp.tanh(unused @ x)
        return x + used

    simple = without_dead(flat(fun))
    assert names(simple) == ["add"]
    assert [const.shape for const in simple.consts] == [(4,)]
    assert len(simple.jaxpr.invars) == 1


def test_unused_inputs_stay_and_outputs_may_be_inputs() -> None:
    simple = simplify(flat(lambda x: x))
    assert names(simple) == []
    assert simple.jaxpr.outvars == simple.jaxpr.invars


def test_live_keeps_the_order() -> None:
    jaxpr = flat(lambda x: (jnp.sin(x), jnp.cos(jnp.exp(x)))).jaxpr
    kept = live(jaxpr.eqns, [jaxpr.outvars[1]])
    assert [equation.primitive.name for equation in kept] == ["exp", "cos"]
    assert live(jaxpr.eqns, []) == []
