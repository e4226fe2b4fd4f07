"""Finds values known to be zero, so that a sum over rows may be added to them, or rows need not be computed."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from dorylax.program.rows.rules import Operation
from dorylax.program.rows.types import Free

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
