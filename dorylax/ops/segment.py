"""Reductions over compressed sparse rows in plain JAX, by `jax.ops.segment_*`.

They are the lowering of the primitives without a native kernel (other platforms, other dtypes, no compiler at install time)
and the reference for tests of the kernel. Rows are given by `offsets`, uint32 `[R+1, 2]` (see `dorylax.graph.compressed`).
Sums of bfloat16 and float16 accumulate in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Num, UInt32

from dorylax.graph.compressed import Size


def degrees(offsets: UInt32[Array, "R1 2"]) -> Int32[Array, " R"]:
    """Return the entries of each row, int32 `[R]`: exact while a row has fewer than 2³¹ entries, for any total."""
    low = offsets[:, 0]  # a difference of uint32 wraps around, so the high words cancel
    return (low[1:] - low[:-1]).astype(jnp.int32)


def rows(offsets: UInt32[Array, "R1 2"], num_entries: Size) -> Int32[Array, " E"]:
    """Return the row of each entry, int32 `[E]`.

    Raises:
        NotImplementedError: There are more entries than int32 counts, which only the native kernels support.
    """
    if isinstance(num_entries, int) and num_entries > np.iinfo(np.int32).max:
        raise NotImplementedError(
            f"jax.ops.segment_sum takes at most 2147483647 edges, the graph has {num_entries}: larger graphs need the "
            "native CPU kernels (see `dorylax info`)"
        )
    count = degrees(offsets)
    return jnp.repeat(jnp.arange(count.shape[0], dtype=jnp.int32), count, total_repeat_length=num_entries)


def accumulator(dtype: jnp.dtype) -> jnp.dtype:
    """Return the dtype for accumulating sums of a dtype."""
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.dtype(jnp.float32) if narrow else dtype


def reduce_entries(values: Num[Array, "E *rest"], offsets: UInt32[Array, "R1 2"], reduce: str) -> Num[Array, "R *rest"]:
    """Reduce each row's entries by "sum", "max" or "min"; an empty row gives 0."""
    ids, count = rows(offsets, values.shape[0]), offsets.shape[0] - 1
    if reduce == "sum":
        wide = values.astype(accumulator(values.dtype))
        return jax.ops.segment_sum(wide, ids, count, indices_are_sorted=True).astype(values.dtype)
    segment = {"max": jax.ops.segment_max, "min": jax.ops.segment_min}[reduce]
    extremum = segment(values, ids, count, indices_are_sorted=True)
    empty = (degrees(offsets) == 0).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(empty, jnp.zeros((), values.dtype), extremum)
