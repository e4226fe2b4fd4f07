"""The personalised propagation of Gasteiger et al. Its model is `dorylax.layers.models.appnp`."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import NormalisedAdjacency, check_alpha, normalised_adjacency
from dorylax.layers.dropout import Dropout
from dorylax.layers.inputs import follow_input
from dorylax.ops import edge_ids, loop_ids


@final
class APPNPConv(nnx.Module):
    r"""Propagation by approximate personalised PageRank: Gasteiger et al., ICLR 2019.

    "Predict then propagate", https://arxiv.org/abs/1810.05997, equation 4, without its softmax. In matrices, with Ã
    that of `GCNConv`, Z_0 = X and X' = Z_K,

        Z_{k+1} = (1 - α) Ã Z_k + α X

    and for one vertex, over its in-neighbours and itself,

        z_v ← (1 - α) Σ_{u ∈ N(v) ∪ {v}} w_uv / √(d_u d_v) · z_u + α x_v.

    There are no parameters: the rows to propagate are already predictions. The K steps are one `jax.lax.scan`. With dropout,
    which draws new elements of Ã at every step, they are unrolled.

    Args:
        num_propagations: K (default: 10).
        alpha: Α, the probability of teleporting back to the vertex itself (default: 0.1).
        edge_dropout: Probability of dropping an edge or loop at a step (default: 0).
        dtype: Dtype of the computation and the result (default: that of the input).
        rngs: Stream `dropout` for the masks.

    Attributes:
        dropout: The `Dropout` of the edges.

    Raises:
        ValueError: `num_propagations` < 1, `alpha` or `edge_dropout` outside 0 … 1.

    Shapes:
        - input: graph with V vertices and E edges, rows `[V, F]` of any width, edge weights w `[E]` (optional)
        - output: `[V, F]`
    """

    def __init__(
        self,
        *,
        num_propagations: int = 10,
        alpha: float = 0.1,
        edge_dropout: float = 0.0,
        dtype: DTypeLike | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        if num_propagations < 1:
            raise ValueError(f"num_propagations must be ≥ 1, got {num_propagations}")
        check_alpha(alpha)
        self.num_propagations = num_propagations
        self.alpha = alpha
        self.dtype = dtype
        self.dropout = Dropout(edge_dropout, rngs=rngs)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
    ) -> Float[Array, "V F"]:
        """Apply the layer.

        Args:
            graph: V vertices, E edges.
            x: Rows `[V, F]`.
            edge_weight: `[E]`, by edge id, w ≥ 0 (default: all ones), as in `GCNConv`.

        Returns:
            `[V, F]`, in `dtype` or else the dtype of `x`.
        """
        x, weight = follow_input((x, edge_weight), dtype=self.dtype)
        adjacency = normalised_adjacency(graph, x, weight)

        def step(z: jax.Array, adjacency: NormalisedAdjacency) -> jax.Array:
            return (1 - self.alpha) * adjacency.times(z) + self.alpha * x

        if self.dropout.rate == 0 or self.dropout.deterministic:
            propagated, _ = jax.lax.scan(lambda z, _: (step(z, adjacency), None), x, None, length=self.num_propagations)
            return propagated
        z = x
        for _ in range(self.num_propagations):
            z = step(z, self._dropped(adjacency))
        return z

    def _dropped(self, adjacency: NormalisedAdjacency) -> NormalisedAdjacency:
        """Return Ã with dropped elements. Dropping a weight drops its element, since Ã scales it afterwards."""
        graph, weight = adjacency.graph, adjacency.edge_weight
        if weight is None:
            weight = jnp.ones(graph.num_edges, adjacency.scale.dtype)
        weight, loops = self.dropout.together((weight[:, None], edge_ids(graph)), (adjacency.loops, loop_ids(graph)))
        return adjacency._replace(edge_weight=weight[:, 0], loops=loops)
