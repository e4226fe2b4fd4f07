"""`global_sum` and `global_mean`: one value of all vertices (norms, virtual nodes, readouts)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.segment import accumulator
from dorylax.ops.shapes import AnyArray, check_rows, mean_dtypes


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
