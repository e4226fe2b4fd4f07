"""`edge_softmax`: attention weights of each vertex's in-edges."""

from __future__ import annotations

from typing import overload

import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.edge_order import from_slots, to_slots
from dorylax.ops.primitives import softmax
from dorylax.ops.primitives.structure import structure_of
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
