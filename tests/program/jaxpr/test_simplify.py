from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.jaxpr.simplify import simplify, without_repeats
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
