"""`readout`: each graph of many that lie side by side as one reduces the rows of its vertices."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Num

from dorylax.ops.segment import accumulator
from dorylax.ops.shapes import mean_dtypes

Readout = Literal["sum", "mean", "max"]
_RUN = 2048  # vertices at least in a run, as kSpan of kernel/rows.h


def readout(
    x: Num[Array, "V *rest"], graph_of: Int32[Array, " V"], num_graphs: int, reduce: Readout = "sum"
) -> Num[Array, "G *rest"]:
    """`y[g] = reduce over vertices v with graph_of[v] = g of x[v]`; a graph without vertices gives 0, as an empty row does.

    Sums of bfloat16 and float16 accumulate in float32; a mean of integers is float32. Long sums are formed in parts, so
    that float32 keeps its digits. Vertices that tie for a graph's maximum share the gradient.

    Args:
        x: rows of vertices.
        graph_of: the graph of each vertex, in 0 … G-1, in any order.
        num_graphs: G, which a compiled function must know.
        reduce: "sum", "mean" or "max".

    Raises:
        ValueError: another `reduce`.
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
    """Sums by graph, each as a sum of the sums over runs of vertices; the parts are never larger than `x` together."""
    size = x.shape[0]
    parts = size // max(num_graphs, _RUN) if isinstance(size, int) else 1  # an interval of a pipeline is a part itself
    if parts < 2:
        return jax.ops.segment_sum(x, graph_of, num_graphs)
    run = jnp.arange(size, dtype=jnp.int32) // -(-size // parts)
    sums = jax.ops.segment_sum(x, graph_of * parts + run, num_graphs * parts)
    return sums.reshape(num_graphs, parts, *x.shape[1:]).sum(axis=1)
