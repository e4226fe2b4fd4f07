"""The CPU lowering of the primitives: XLA custom calls into the native kernels (kernel/ffi.cc)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dorylax.ops.native import op_number
from dorylax.ops.primitives.structure import DirectedRows


def reduce(
    op: str,
    x: Any,
    rows: DirectedRows,
    *,
    weight: Any = None,
    own: Any = None,
    other: Any = None,
    identity: bool = False,
) -> Any:
    """Reduce each row's entries.

    Args:
        op: "sum", "weighted_sum", "max", "min" or "select_sum".
        x: `[V, H, F]`, or per entry `[E, H, F]` if `identity`.
        rows: The rows.
        weight: `[E, H]`, for "weighted_sum".
        own: `[R, H, F]`, for "select_sum".
        other: `[V, H, F]`, for "select_sum".
        identity: Whether entry k refers to row k of `x`, not to row `neighbours[k]`.
    """
    none, no_index = jnp.zeros((0,), x.dtype), jnp.zeros((0,), jnp.int32)
    result = jax.ShapeDtypeStruct((rows.offsets.shape[0] - 1, *x.shape[1:]), x.dtype)
    return jax.ffi.ffi_call("dorylax_ffi_reduce", result)(
        x,
        none if weight is None else weight,
        none if own is None else own,
        none if other is None else other,
        rows.offsets,
        no_index if identity else rows.neighbours,
        no_index if rows.edges is None else rows.edges,
        op=op_number(op),
    )


def dot(own: Any, x: Any, rows: DirectedRows) -> Any:
    """Return `[E, H]`: per entry and head, the product of the row's values `[R, H, F]` and its neighbour's `[V, H, F]`."""
    result = jax.ShapeDtypeStruct((rows.neighbours.shape[0], x.shape[1]), x.dtype)
    no_index = jnp.zeros((0,), jnp.int32)
    return jax.ffi.ffi_call("dorylax_ffi_dot", result)(own, x, rows.offsets, rows.neighbours, no_index)


def expand(x: Any, rows: DirectedRows, *, of_neighbour: bool) -> Any:
    """Return `[E, H, F]`: per entry, the values of its neighbour, or of its row."""
    result = jax.ShapeDtypeStruct((rows.neighbours.shape[0], *x.shape[1:]), x.dtype)
    no_index = jnp.zeros((0,), jnp.int32)
    neighbours = rows.neighbours if of_neighbour else no_index
    return jax.ffi.ffi_call("dorylax_ffi_expand", result)(x, rows.offsets, neighbours, no_index)
