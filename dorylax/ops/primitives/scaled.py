"""`gather_scaled`: a sum over neighbours with the usual arithmetic after it, done while a row is in registers.

Layers do not call it. It lacks a derivative, since `program.gathers` inserts it into a step that is already
differentiated.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import ShapedArray
from dorylax.ops import segment
from dorylax.ops.primitives.operator import OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import Direction, Structure, num_rows, rows_of

# Operands: rows h [V, H, F]; loops [V] and scale [V], of the result's dtype, or empty for ones. The result is
#   y[v] = scale[v] · (Σ over neighbours u of h[u] + loops[v] · h[v])  if `own`, else without the second term,
# [V, H, F] of `dtype`: that of h, or float32 for rows stored in bfloat16. Sums are accumulated in float32 at least, and
# rounded once.


def _abstract(
    h: Any, loops: Any, scale: Any, structure: Structure, *, direction: Direction, own: bool, dtype: Any
) -> Any:
    count = num_rows(structure, direction)
    for name, factors in (("loops", loops), ("scale", scale)):
        if factors.shape not in ((0,), (count,)) or factors.dtype != dtype:
            raise ValueError(
                f"gather_scaled: {name} must be {jnp.dtype(dtype)} of shape [0] or [{count}], got {factors.dtype} "
                f"{list(factors.shape)}"
            )
    if own and h.shape[0] != count:
        raise ValueError(
            f"gather_scaled: a row's own values need as many rows as vertices, got {h.shape[0]} of {count}"
        )
    return ShapedArray((count, *h.shape[1:]), dtype)


def _lower(h: Any, loops: Any, scale: Any, structure: Structure, *, direction: Direction, own: bool, dtype: Any) -> Any:
    rows, wide = rows_of(structure, direction), jnp.promote_types(dtype, jnp.float32)
    y = segment.reduce_entries(h[rows.neighbours].astype(wide), rows.offsets, "sum")
    if own:
        y = y + _times(loops, h.astype(wide))
    return _times(scale, y).astype(dtype)


def _times(factors: Any, rows: Any) -> Any:
    return rows if factors.shape == (0,) else factors.astype(rows.dtype)[:, None, None] * rows


def _native(
    h: Any, loops: Any, scale: Any, structure: Structure, *, direction: Direction, own: bool, dtype: Any
) -> Any:
    rows = rows_of(structure, direction)
    result = jax.ShapeDtypeStruct((rows.offsets.shape[0] - 1, *h.shape[1:]), dtype)
    call = jax.ffi.ffi_call("dorylax_ffi_scaled_sum", result)
    return call(h, loops, scale, rows.offsets, rows.neighbours, own=np.bool_(own))


def _served(h: Any, _loops: Any, scale: Any) -> list[Any]:
    stored = h.dtype == jnp.bfloat16 and scale.dtype == jnp.float32  # the kernel widens such rows
    return [h] if stored else [h, scale]


def _no_derivative(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "dorylax_gather_scaled has no derivative: it belongs to a step that is differentiated already. Differentiate the "
        "model itself, or a function that calls dorylax.ops.gather"
    )


gather_scaled = Operator(
    "gather_scaled",
    [OperandSpec("neighbour"), OperandSpec("own", axes=1), OperandSpec("own", axes=1)],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    abstract=_abstract,
    lower=_lower,
    native=_native,
    served=_served,
)
gather_scaled.def_jvp(_no_derivative)
