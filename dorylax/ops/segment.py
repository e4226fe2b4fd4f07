"""Definition of the graph operators in plain JAX: `jax.ops.segment_*` over compressed sparse rows.

These functions are the lowering of the primitives without a native kernel (other platforms, other dtypes, no compiler at
install time) and the reference for tests of the kernel. Rows are given by `offsets`, uint32 `[R+1, 2]` (see
`dorylax.graph.compressed`), and `neighbours`, int32 `[E]`. `edges`, int32 `[E]`, gives the edge id of each entry, if
per-edge arrays are in another order than the entries. Per-vertex arrays are `[V, H, F]` (H heads), per edge `[E, H]` or `[E,
H, F]`. Sums of bfloat16 and float16 accumulate in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, Num, UInt32

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


def gather(
    x: Num[Array, "V H F"], offsets: UInt32[Array, "R1 2"], neighbours: Int32[Array, " E"], reduce: str
) -> Num[Array, "R H F"]:
    """`y[r] = reduce over entries k of row r of x[neighbours[k]]`."""
    return reduce_entries(x[neighbours], offsets, reduce)


def gather_weighted(
    x: Float[Array, "V H F"],
    weight: Float[Array, "E H"],
    offsets: UInt32[Array, "R1 2"],
    neighbours: Int32[Array, " E"],
    edges: Int32[Array, " E"] | None,
) -> Float[Array, "R H F"]:
    """`y[r] = Σ over entries k of row r of weight[edges[k]] · x[neighbours[k]]`."""
    wide = accumulator(x.dtype)
    ordered = weight if edges is None else weight[edges]
    messages = ordered.astype(wide)[:, :, None] * x.astype(wide)[neighbours]
    return reduce_entries(messages, offsets, "sum").astype(x.dtype)


def select_sum(
    own: Float[Array, "R H F"],
    other: Float[Array, "V H F"],
    x: Float[Array, "V H F"],
    offsets: UInt32[Array, "R1 2"],
    neighbours: Int32[Array, " E"],
) -> Float[Array, "R H F"]:
    """`y[r] = Σ over entries k of row r of x[n] where other[n] == own[r], n = neighbours[k]`."""
    same = other[neighbours] == own[rows(offsets, neighbours.shape[0])]
    return reduce_entries(jnp.where(same, x[neighbours], 0).astype(x.dtype), offsets, "sum")


def edge_dot(
    a: Float[Array, "R H F"],
    b: Float[Array, "V H F"],
    offsets: UInt32[Array, "R1 2"],
    neighbours: Int32[Array, " E"],
) -> Float[Array, "E H"]:
    """`y[k] = Σ_f a[row of k, h, f] · b[neighbours[k], h, f]` (a sampled dense-dense product)."""
    wide = accumulator(a.dtype)
    product = a.astype(wide)[rows(offsets, neighbours.shape[0])] * b.astype(wide)[neighbours]
    return product.sum(-1).astype(a.dtype)
