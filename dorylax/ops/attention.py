"""`additive_attention`: a weighted sum over in-neighbours, whose weights are a softmax of scores of both ends (GAT)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.primitives import attention
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.shapes import AnyArray, check_floating, check_rows


def additive_attention(
    graph: CompressedGraph,
    z: Float[AnyArray, "V H F"],
    source_scores: Float[AnyArray, "V H"],
    target_scores: Float[AnyArray, "V H"],
    *,
    negative_slope: float = 0.2,
    loops: Float[AnyArray, " V"] | None = None,
) -> Float[Array, "V H F"]:
    r"""`y_v = Σ_{u ∈ N(v)} α_uv z_u` with `α_uv = softmax over u of LeakyReLU(s_u + t_v)`, head by head.

    Veličković et al., "Graph attention networks", ICLR 2018, equations 1 to 4. Equal to `scatter_src`, `scatter_dst`,
    `edge_softmax` and `gather` in sequence, but on CPUs neither it nor its gradient makes an array over the edges.
    (Forward-mode and second derivatives do.)

    Args:
        graph: The graph.
        z: Summands, `[V, H, F]`, for H heads.
        source_scores: s `[V, H]`, scores of vertices as neighbours; -inf excludes all out-edges of a vertex.
        target_scores: t `[V, H]`, scores of vertices that attend.
        negative_slope: Negative slope of the LeakyReLU.
        loops: `[V]`, above 0 if a vertex attends to itself over an implicit loop (`missing_self_loops`); None: no loops.
            It is not differentiated.

    Returns:
        `[V, H, F]`, in the common dtype of `z` and the scores; bfloat16 is summed in float32. 0 if every score is -inf, and
        for a vertex without in-edges and loop.

    Raises:
        GraphError: The graph has more than 2³¹-1 edges.
        TypeError: All of `z` and the scores are integers.
        ValueError: An argument does not have one row per vertex, or heads differ.
    """
    for name, array in (("z", z), ("source_scores", source_scores), ("target_scores", target_scores)):
        check_rows(name, array, "vertices", graph.num_vertices)
    if z.ndim != 3 or source_scores.shape[1:] != z.shape[1:2] or target_scores.shape[1:] != z.shape[1:2]:
        raise ValueError(
            f"z must have shape [V, H, F], source_scores and target_scores [V, H]; got {z.shape}, {source_scores.shape} and "
            f"{target_scores.shape}"
        )
    dtype = jnp.result_type(z, source_scores, target_scores)
    check_floating("z or its scores", jax.ShapeDtypeStruct((), dtype))
    takes_part = jnp.zeros(z.shape[0], dtype) if loops is None else loops.astype(dtype)
    check_rows("loops", takes_part, "vertices", graph.num_vertices)
    if takes_part.ndim != 1:
        raise ValueError(f"loops must have shape [V], got {takes_part.shape}")
    (y,) = attention.attention(
        z.astype(dtype),
        source_scores.astype(dtype),
        target_scores.astype(dtype),
        takes_part,
        structure_of(graph),
        negative_slope=float(negative_slope),
    )
    return y
