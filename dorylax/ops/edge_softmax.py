"""edge softmax."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.graph import Graph
from dorylax.ops.edge_gather import gather_edges
from dorylax.ops.scatter import scatter_dst


def edge_softmax(graph: Graph, scores: Float[Array, "E *heads"], loop_scores: Float[Array, "V *heads"] | None = None):
    top = gather_edges(graph, scores, reduce="max")
    if loop_scores is not None:
        top = jnp.where((gather_edges(graph, jnp.ones_like(scores)) > 0), jnp.maximum(top, loop_scores), loop_scores)
    p = jnp.exp(scores - scatter_dst(graph, top))
    total = gather_edges(graph, p)
    if loop_scores is None:
        return p / scatter_dst(graph, total)
    q = jnp.exp(loop_scores - top)
    total = total + q
    return p / scatter_dst(graph, total), q / total
