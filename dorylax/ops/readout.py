"""From rows of vertices to rows of graphs that lie side by side as one."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Num

from dorylax.ops.segment import accumulator

Readout = Literal["sum", "mean", "max"]


def readout(
    x: Num[Array, "V *rest"], graph_of: Int32[Array, " V"], num_graphs: int, reduce: Readout = "sum"
) -> Num[Array, "G *rest"]:
    """`y[g] = reduce over vertices v with graph_of[v] = g of x[v]`; a graph without vertices gives 0, as an empty row does.

    Sums of bfloat16 and float16 accumulate in float32. Where several vertices have a graph's maximum, the gradient is
    shared among them.

    Args:
        x: rows of vertices.
        graph_of: the graph of each, in 0 … G-1, in any order.
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
    total = jax.ops.segment_sum(x.astype(accumulator(x.dtype)), graph_of, num_graphs)
    return (total if reduce == "sum" else total / jnp.maximum(count, 1)).astype(x.dtype)
