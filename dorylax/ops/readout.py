"""`readout`: reduces the rows of each graph's vertices, for many graphs joined into one."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Num

from dorylax.ops.segment import accumulator
from dorylax.ops.shapes import mean_dtypes

Readout = Literal["sum", "mean", "max"]
_RUN = 2048  # minimum vertices of a run, as kSpan of kernel/rows.h


def readout(
    x: Num[Array, "V *rest"], graph_of: Int32[Array, " V"], num_graphs: int, reduce: Readout = "sum"
) -> Num[Array, "G *rest"]:
    """`y[g] = reduce over vertices v with graph_of[v] = g of x[v]`; a graph without vertices gives 0.

    Sums of bfloat16 and float16 accumulate in float32; a mean of integers is float32. Long sums are computed in parts, so
    that float32 keeps its digits. Vertices that tie for a graph's maximum share the gradient.

    Args:
        x: Rows of vertices.
        graph_of: Graph of each vertex, in 0 … G-1, in any order.
        num_graphs: G, a static number in compiled functions.
        reduce: "sum", "mean" or "max".

    Raises:
        ValueError: `reduce` is unknown.
    """
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"readout takes reduce sum, mean or max, got {reduce!r}")
    count = jax.ops.segment_sum(jnp.ones(x.shape[:1], jnp.int32), graph_of, num_graphs)
    count = count.reshape(-1, *(1,) * (x.ndim - 1))
    if reduce == "max":
        largest = jax.ops.segment_max(x, graph_of, num_graphs)
        return jnp.where(count == 0, jnp.zeros((), x.dtype), largest)
    total = _sum(x.astype(accumulator(x.dtype)), graph_of, num_graphs)
    if reduce == "sum":
        return total.astype(x.dtype)
    return (total / jnp.maximum(count, 1)).astype(mean_dtypes(x.dtype)[1])


def _sum(x: Num[Array, "V *rest"], graph_of: Int32[Array, " V"], num_graphs: int) -> Num[Array, "G *rest"]:
    """Return sums by graph, each a sum of sums over runs of vertices; the parts are together never larger than `x`."""
    size = x.shape[0]
    parts = size // max(num_graphs, _RUN) if isinstance(size, int) else 1  # an interval of a pipeline is one part
    if parts < 2:
        return jax.ops.segment_sum(x, graph_of, num_graphs)
    run = jnp.arange(size, dtype=jnp.int32) // -(-size // parts)
    sums = jax.ops.segment_sum(x, graph_of * parts + run, num_graphs * parts)
    return sums.reshape(num_graphs, parts, *x.shape[1:]).sum(axis=1)
