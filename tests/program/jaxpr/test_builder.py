from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import eval_jaxpr, make_jaxpr_of, source_lines
from dorylax.program.jaxpr.builder import Builder

X = np.linspace(0.1, 1, 3, dtype=np.float32)
OFFSET = np.arange(3, dtype=np.float32)


def original(x: Any) -> Any:
    return jnp.cos(jnp.sin(x)) + OFFSET


def test_equations_are_replaced_by_functions() -> None:
    closed = make_jaxpr_of(original, X)
    table = np.full(3, 2, np.float32)
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if equation.primitive.name == "sin":
            operands = [builder.read(atom) for atom in equation.invars]
            (result,) = equation.outvars
            builder.replace(result, builder.call(lambda x: jnp.exp(x) * table, operands, equation))
        else:
            builder.keep(equation)
    rewritten = builder.finish()
    assert [equation.primitive.name for equation in rewritten.jaxpr.eqns] == ["exp", "mul", "cos", "add"]
    (result,) = eval_jaxpr(rewritten.jaxpr, rewritten.consts, X)
    np.testing.assert_allclose(result, np.cos(2 * np.exp(X)) + OFFSET, rtol=1e-6)
    assert "original" in [line.function for line in source_lines(rewritten.jaxpr.eqns[0])]


def test_a_function_may_give_its_operand_or_a_number() -> None:
    closed = make_jaxpr_of(lambda x: (jnp.sin(x), jnp.cos(x).sum()), X)
    builder = Builder(closed)
    sine, _, total = closed.jaxpr.eqns
    builder.replace(sine.outvars[0], builder.call(lambda x: x, list(sine.invars), sine))
    builder.replace(total.outvars[0], builder.call(lambda: jnp.float32(5), [], total))
    rewritten = builder.finish()
    assert rewritten.jaxpr.eqns == []
    results = eval_jaxpr(rewritten.jaxpr, rewritten.consts, X)
    np.testing.assert_array_equal(results[0], X)
    assert results[1] == 5
