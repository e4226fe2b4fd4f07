"""Values of all vertices together: `global_sum` and `global_mean` of a graph, `readout` of many graphs joined into one."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.segment import accumulator
from dorylax.ops.shapes import AnyArray, check_rows, mean_dtypes

Readout = Literal["sum", "mean", "max"]
_RUN = 2048  # minimum vertices of a run, as kSpan of kernel/rows.h


def global_sum(graph: CompressedGraph, x: Float[AnyArray, "V *rest"]) -> Float[Array, "*rest"]:
    """`Σ_v x[v]` over all vertices of the graph.

    Equal to `x.sum(axis=0)`, which a model may also write. In a pipeline all intervals meet there, in the forward and the
    backward pass, and each server sends one small message to each other.

    Args:
        graph: The graph.
        x: Values per vertex, `[V, …]`.

    Returns:
        `[…]` in the dtype of `x`; sums of bfloat16 and float16 accumulate in float32.

    Raises:
        ValueError: `x` does not have one row per vertex, or the vertices are of many graphs (`GraphPrediction`).
    """
    check_rows("x", x, "vertices", graph.num_vertices)
    if graph.graph_of is not None:
        raise ValueError(
            f"global_sum and global_mean would mix the {graph.num_graphs} graphs of this task: use dorylax.ops.readout, "
            "which gives one row per graph"
        )
    x = jnp.asarray(x)
    return x.astype(accumulator(x.dtype)).sum(axis=0).astype(x.dtype)


def global_mean(graph: CompressedGraph, x: Num[AnyArray, "V *rest"]) -> Float[Array, "*rest"]:
    """`Σ_v x[v] / V`, computed in float32 at least; 0 for a graph without vertices.

    Arguments are those of `global_sum`; a mean of integers is float32.
    """
    x = jnp.asarray(x)
    total = global_sum(graph, x.astype(jnp.promote_types(x.dtype, jnp.float32)))
    count = jnp.maximum(jnp.asarray(graph.num_vertices, jnp.int32), 1)
    return (total / count.astype(total.dtype)).astype(mean_dtypes(x.dtype)[1])


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
