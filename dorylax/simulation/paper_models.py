"""The Dorylus paper's models as its system runs them, reduced to the operations that take time."""

from __future__ import annotations

from typing import final

import jax
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import glorot_uniform
from dorylax.ops import edge_softmax, gather, scatter_dst


@final
class GatherFirstGCN(nnx.Module):
    """σ(A σ(A X W_0) W_1): neighbors are summed before the product, at the wider width; the weights of Â cost no time.

    Args:
        in_features, hidden_features, out_features: Widths of rows.
        rngs: The stream `params` initializes the matrices.
    """

    def __init__(self, in_features: int, hidden_features: int, out_features: int, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Param(glorot_uniform(rngs.params(), (in_features, hidden_features), "float32"))
        self.second = nnx.Param(glorot_uniform(rngs.params(), (hidden_features, out_features), "float32"))

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return the rows of all vertices, `[V, out_features]`."""
        hidden = jax.nn.relu(gather(graph, x) @ self.first[...])
        result: jax.Array = gather(graph, hidden) @ self.second[...]
        return result


@final
class PerEdgeGAT(nnx.Module):
    """A graph attention network with attention computed per edge in functions, on scalars that travel.

    In the paper's public release (`src/funcs/gat`), a function fetches the rows of its interval's vertices and expands them
    along their edges itself: one number per edge goes each way. The operations are those of a product with a matrix of
    `[hidden_features, out_features]` on each edge, forward, and twice as many backward (`docs/log/2026-11.md`). Arguments
    are those of `GatherFirstGCN`.
    """

    def __init__(self, in_features: int, hidden_features: int, out_features: int, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Param(glorot_uniform(rngs.params(), (in_features, hidden_features), "float32"))
        self.second = nnx.Param(glorot_uniform(rngs.params(), (hidden_features, out_features), "float32"))
        self.attention = nnx.Param(glorot_uniform(rngs.params(), (hidden_features, out_features), "float32"))
        self.source = nnx.Param(glorot_uniform(rngs.params(), (hidden_features, 1), "float32"))

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return the rows of all vertices, `[V, out_features]`."""
        hidden = x @ self.first[...]
        scores = scatter_dst(graph, (hidden @ self.source[...])[:, 0])
        expanded = scores[:, None] * self.source[...][:, 0]
        weights = edge_softmax(graph, (expanded @ self.attention[...]).sum(axis=1))
        hidden = jax.nn.relu(gather(graph, hidden[:, None], weights[:, None])[:, 0])
        result: jax.Array = gather(graph, hidden @ self.second[...])
        return result
