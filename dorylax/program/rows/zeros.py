"""Which values are known to be zero, so that a sum over rows may be added to them."""

from __future__ import annotations

import jax.numpy as jnp

from dorylax.program.rows.rules import Operation
from dorylax.program.rows.types import Free

# Zeros in (in every operand, or in those that `is_zero` looks at), zeros out.
# fmt: off
_KEEP_ZERO = frozenset([
    "add", "add_any", "broadcast_in_dim", "concatenate", "conj", "convert_element_type", "copy", "div", "dot_general",
    "dynamic_slice", "imag", "mul", "neg", "pad", "real", "reduce_sum", "reshape", "rev", "select_n", "slice", "squeeze",
    "stack", "stop_gradient", "sub", "transpose",
])
# fmt: on


def is_zero(op: Operation) -> bool:
    """Whether the result of an operation on values without rows is known to be zero in the sense of `Free`."""
    if op.name not in _KEEP_ZERO:
        return False
    zeros = [isinstance(kind, Free) and kind.zero for kind in op.types]
    if op.name in ("mul", "dot_general"):
        return any(zeros)
    if op.name in ("div", "dynamic_slice"):
        return zeros[0]
    if op.name == "select_n":
        return all(zeros[1:])
    if op.name == "convert_element_type" and not jnp.issubdtype(op.result_dtype, jnp.inexact):
        return zeros[0] and not jnp.issubdtype(op.dtype(0), jnp.inexact)  # what NaN becomes is not defined
    return all(zeros)
