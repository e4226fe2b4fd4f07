"""The CPU lowering of the primitives: XLA custom calls into the native kernels (kernel/ffi.cc)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.ops.native import op_number
from dorylax.ops.primitives.structure import DirectedRows, Structure


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


def scaled_sum(h: Any, loops: Any, scale: Any, rows: DirectedRows, *, own: bool, dtype: Any) -> Any:
    """Return `[R, H, F]` of `primitives.scaled`, from the same operands."""
    result = jax.ShapeDtypeStruct((rows.offsets.shape[0] - 1, *h.shape[1:]), dtype)
    call = jax.ffi.ffi_call("dorylax_ffi_scaled_sum", result)
    return call(h, loops, scale, rows.offsets, rows.neighbours, own=np.bool_(own))


def dot(own: Any, x: Any, rows: DirectedRows) -> Any:
    """Return `[E, H]`: per entry and head, the product of the row's values `[R, H, F]` and its neighbour's `[V, H, F]`."""
    result = jax.ShapeDtypeStruct((rows.neighbours.shape[0], x.shape[1]), x.dtype)
    no_index = jnp.zeros((0,), jnp.int32)
    return jax.ffi.ffi_call("dorylax_ffi_dot", result)(own, x, rows.offsets, rows.neighbours, no_index)


def expand(x: Any, rows: DirectedRows, *, of: str) -> Any:
    """Return `[E, H, F]`: per entry, the values of its "neighbour" or of its "row"."""
    result = jax.ShapeDtypeStruct((rows.neighbours.shape[0], *x.shape[1:]), x.dtype)
    no_index = jnp.zeros((0,), jnp.int32)
    neighbours = rows.neighbours if of == "neighbour" else no_index
    return jax.ffi.ffi_call("dorylax_ffi_expand", result)(x, rows.offsets, neighbours, no_index)


def attention(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    """Return `(y [V, H, F],)` of `primitives.attention`."""
    call = jax.ffi.ffi_call("dorylax_ffi_attention", (_like(z),))
    rows = structure.in_offsets, structure.in_neighbours
    return tuple(call(z, s, t, loops, *rows, slope=np.float64(negative_slope)))


def attention_saving(
    z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float, numbers: Any
) -> tuple[Any, ...]:
    """Return `(y [V, H, F], tilt [V, H, F], shift [V, H], scale [V, H])`, the latter two of dtype `numbers`."""
    per_head = jax.ShapeDtypeStruct(s.shape, numbers)
    call = jax.ffi.ffi_call("dorylax_ffi_attention_saving", (_like(z), _like(z), per_head, per_head))
    rows = structure.in_offsets, structure.in_neighbours
    return tuple(call(z, s, t, loops, *rows, slope=np.float64(negative_slope)))


def attention_backward(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    """Return cotangents of `(z, s, t)`, from `(z, s, t, loops, y, tilt, shift, scale, ct, structure)`."""
    *dense, structure = operands
    call = jax.ffi.ffi_call("dorylax_ffi_attention_backward", tuple(map(_like, dense[:3])))
    return tuple(call(*dense, structure.out_offsets, structure.out_neighbours, slope=np.float64(negative_slope)))


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
