"""`global_sum` and `global_mean`: one value of all vertices (norms, virtual nodes, readouts)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.shapes import AnyArray, check_rows


def global_sum(graph: CompressedGraph, x: Float[AnyArray, "V *rest"]) -> Float[Array, "*rest"]:
    """`Σ_v x[v]` over all vertices of the graph.

    The same as `x.sum(axis=0)`, which a model may write as well. In a pipeline all intervals meet there, forwards and
    backwards, and each server sends one small message to each other.

    Args:
        graph: the graph.
        x: values per vertex, `[V, …]`.

    Returns:
        `[…]`; bfloat16 is summed in float32.

    Raises:
        ValueError: `x` does not have one row per vertex.
    """
    check_rows("x", x, "vertices", graph.num_vertices)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.asarray(x, wide).sum(axis=0).astype(x.dtype)


def global_mean(graph: CompressedGraph, x: Float[AnyArray, "V *rest"]) -> Float[Array, "*rest"]:
    """`Σ_v x[v] / V`, as `global_sum`; 0 for a graph without vertices."""
    total = global_sum(graph, x)
    count = jnp.maximum(jnp.asarray(graph.num_vertices, jnp.int32), 1)
    return (total / count.astype(total.dtype)).astype(total.dtype)
