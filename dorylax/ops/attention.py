"""Attention: `edge_softmax`, the weights of each vertex's in-edges, and `additive_attention`, the whole operator of GAT."""

from __future__ import annotations

from typing import overload

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.primitives import attention, softmax
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.scatter import from_slots, to_slots
from dorylax.ops.segment import accumulator
from dorylax.ops.shapes import AnyArray, check_floating, check_rows


@overload
def edge_softmax(
    graph: CompressedGraph, scores: Float[AnyArray, "E *heads"], loop_scores: None = None
) -> Float[Array, "E *heads"]: ...
@overload
def edge_softmax(
    graph: CompressedGraph, scores: Float[AnyArray, "E *heads"], loop_scores: Float[AnyArray, "V *heads"]
) -> tuple[Float[Array, "E *heads"], Float[Array, "V *heads"]]: ...
def edge_softmax(
    graph: CompressedGraph, scores: Float[AnyArray, "E *heads"], loop_scores: Float[AnyArray, "V *heads"] | None = None
) -> Float[Array, "E *heads"] | tuple[Float[Array, "E *heads"], Float[Array, "V *heads"]]:
    """Softmax of edge scores over the in-edges of each vertex, head by head (Veličković et al. 2018, eq. 2).

    Args:
        graph: The graph.
        scores: `[E]` or `[E, H]`, in order of edge ids; -inf excludes an edge.
        loop_scores: Scores of implicit self-loops, `[V]` or `[V, H]`, which then take part in their vertex's softmax;
            -inf for a vertex without a loop.

    Returns:
        The weights, in the shape of `scores`; with `loop_scores`, `(weights, loop weights)`. All are 0 if every score is
        -inf. Bfloat16 and float16 are computed in float32.

    Raises:
        GraphError: Edges have no ids.
        TypeError: The scores are integers.
        ValueError: An argument does not have one row per edge or vertex, or heads differ.
    """
    check_rows("scores", scores, "edges", graph.num_edges)
    check_floating("scores", scores)
    scores = jnp.asarray(scores)
    heads = scores.shape[1:]
    loops = loop_scores
    if loops is None:
        loops = jnp.full((graph.num_vertices, *heads), -jnp.inf, scores.dtype)
    check_rows("loop_scores", loops, "vertices", graph.num_vertices)
    if len(heads) > 1 or loops.shape[1:] != heads:
        raise ValueError(
            f"scores must have shape [E] or [E, H] and loop_scores the same heads, got {scores.shape}, {loops.shape}"
        )
    width = heads[0] if heads else 1
    wide = accumulator(scores.dtype)
    alpha, loop_alpha = (
        weights.astype(scores.dtype)
        for weights in softmax.edge_softmax(
            to_slots(graph, scores).reshape(-1, width).astype(wide),
            loops.reshape(-1, width).astype(wide),
            structure_of(graph),
        )
    )
    alpha = from_slots(graph, alpha.reshape(scores.shape))
    return alpha if loop_scores is None else (alpha, loop_alpha.reshape(loops.shape))


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
