"""Attention over in-neighbours and the vertex itself, from given scores; shared by GAT and GATv2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.dropout import Dropout
from dorylax.ops import edge_ids, edge_softmax, gather, loop_ids, missing_self_loops


def kept(layer: nnx.Module) -> bool:
    """Whether a layer's sown values are kept: `Trainer.intermediates` and `nnx.capture` mark modules for that."""
    return hasattr(layer, "__captures__")


def attend(
    graph: CompressedGraph,
    z: Float[Array, "V H F"],
    scores: Float[Array, "E H"],
    loop_scores: Float[Array, "V H"],
    dropout: Dropout,
    *,
    layer: nnx.Module | None = None,
) -> Float[Array, "V H F"]:
    r"""`y_v = Σ_{u ∈ N(v) ∪ {v}} dropout(α_uv) z_u`, with α the softmax of the scores over u, head by head.

    The loop of a vertex without one is a term of the softmax and of the sum, never an edge. If sown values are kept, the
    layer sows α: `attention` `[E, H]` by edge id, and `loop_attention` `[V, H]` of the implicit loops, 0 for vertices
    without one.

    Args:
        graph: V vertices, E edges.
        z: Summands, `[V, H, F]`, for H heads.
        scores: `[E, H]`, by edge id.
        loop_scores: Scores of the implicit loops, `[V, H]`; ignored for a vertex with an explicit loop.
        dropout: Dropout of the coefficients of edges and loops, keyed by their ids.
        layer: The layer that attends, and sows.

    Returns:
        `[V, H, F]`.
    """
    implicit = missing_self_loops(graph, z.dtype)[:, None] > 0
    alpha, loop_alpha = edge_softmax(graph, scores, jnp.where(implicit, loop_scores, -jnp.inf))
    if layer is not None and kept(layer):
        layer.sow(nnx.Intermediate, "attention", alpha)
        layer.sow(nnx.Intermediate, "loop_attention", loop_alpha)
    alpha, loop_alpha = dropout.together((alpha, edge_ids(graph)), (loop_alpha, loop_ids(graph)))
    y: jax.Array = gather(graph, z, alpha) + loop_alpha[:, :, None] * z
    return y
