"""Stores gathered rows in bfloat16, in a step that computes in float32.

The bytes of the rows determine the cost of a gather. Each row is rounded once before it is gathered, including its own term
in `gather_scaled`; sums, factors and results stay float32. Gathers with weights per edge, extrema and attention stay
unchanged.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import lax

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, type_of
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.scaled import gather_scaled
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.builder import Builder

Gathered = Literal["float32", "bfloat16"]
"""Type in which one machine stores rows that are summed over neighbours."""


def narrow(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same function except for rounding: sums over neighbours of float32 rows read bfloat16.

    Args:
        closed: A flat jaxpr, already differentiated.
    """
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if _takes_float32(equation):
            operands = [builder.read(atom) for atom in equation.invars]
            builder.replace(equation.outvars[0], builder.call(_stored(equation), operands, equation))
        else:
            builder.keep(equation)
    return builder.finish()


def _takes_float32(equation: JaxprEqn) -> bool:
    sums = equation.primitive in (gather_sum.primitive, gather_scaled.primitive)
    return sums and type_of(equation.invars[0]).dtype == jnp.float32


def _stored(equation: JaxprEqn) -> Any:
    def sum_of(h: Any, *structure: Any) -> Any:
        ones = lax.full((0,), 0, jnp.float32)
        params = {"direction": equation.params["direction"], "own": False, "dtype": jnp.dtype(jnp.float32)}
        return gather_scaled(_rounded(h), ones, ones, Structure(*structure), **params)

    def scaled(h: Any, loops: Any, scale: Any, *structure: Any) -> Any:
        return gather_scaled(_rounded(h), loops, scale, Structure(*structure), **equation.params)

    return sum_of if equation.primitive is gather_sum.primitive else scaled


def _rounded(h: Any) -> Any:
    return lax.convert_element_type(h, jnp.bfloat16)
