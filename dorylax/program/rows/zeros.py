"""Finds values known to be zero, so that a sum over rows may be added to them, or rows need not be computed.

A vertex without a label has weight 0 in the loss, so its loss is 0 and its gradients are products with 0. Tasks whose
results are all of this kind need not run for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import Jaxpr, Var, is_literal
from dorylax.program.rows.rules import Operation
from dorylax.program.rows.types import Free, RowType

# Zeros in (in every operand, or in those that `keeps_zero` looks at), zeros out.
# fmt: off
_KEEP_ZERO = frozenset([
    "add", "add_any", "broadcast_in_dim", "concatenate", "conj", "convert_element_type", "copy", "div", "dot_general",
    "dynamic_slice", "imag", "mul", "neg", "pad", "real", "reduce_sum", "reshape", "rev", "select_n", "slice", "squeeze",
    "stack", "stop_gradient", "sub", "transpose",
])
# fmt: on


def keeps_zero(name: str, zeros: Sequence[bool]) -> bool:
    """Whether the result of a primitive is 0 (or NaN, from 0 · ∞).

    Args:
        name: Name of the primitive.
        zeros: For each operand, whether all of it is zero.
    """
    if name not in _KEEP_ZERO:
        return False
    if name in ("mul", "dot_general"):
        return any(zeros)
    if name in ("div", "dynamic_slice"):
        return zeros[0]
    if name == "select_n":
        return all(zeros[1:])
    return all(zeros)


def is_zero(op: Operation) -> bool:
    """Whether the result of an operation on values without rows is known to be zero in the sense of `Free`."""
    zeros = [isinstance(kind, Free) and kind.zero for kind in op.types]
    if op.name == "convert_element_type" and not jnp.issubdtype(op.result_dtype, jnp.inexact):
        return zeros[0] and not jnp.issubdtype(op.dtype(0), jnp.inexact)  # conversion of NaN is undefined
    return keeps_zero(op.name, zeros)


def without_unlabelled(jaxpr: Jaxpr, weights: list[Var], types: Mapping[Var, RowType]) -> frozenset[Var]:
    """Return rows that are 0 at vertices of weight 0, and sums over rows to which such vertices add 0.

    This assumes finite numbers: a product 0 · ∞ counts as 0 if it is not computed.

    Args:
        jaxpr: A step.
        weights: Its inputs for the vertices' weights in the loss.
        types: Types of its values.
    """
    found = set(weights)

    def zero(atom: Any) -> bool:
        if is_literal(atom):
            return not np.any(atom.val)
        kind = types[atom]
        return atom in found or (isinstance(kind, Free) and kind.zero)

    for equation in jaxpr.eqns:
        name, zeros = equation.primitive.name, [zero(atom) for atom in equation.invars]
        if (
            keeps_zero(name, zeros)
            or (name == "ne" and all(zeros))  # False
            or (name == "select_n" and zeros[0] and zeros[1])  # by False, the first
            or (name == "scatter-add" and zeros[0] and zeros[2])  # the gradient of a label's logit
        ):
            found.update(equation.outvars)
    return frozenset(var for var in found if not isinstance(types[var], Free))
