"""The personalized propagation of Gasteiger et al., and its model, which propagates predictions."""

from __future__ import annotations

import dataclasses
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import NormalisedAdjacency, normalised_adjacency
from dorylax.layers.base import check_counts, check_fraction, follow_input, module
from dorylax.layers.dropout import Dropout
from dorylax.layers.mlp import DenseModel
from dorylax.layers.recipes import published
from dorylax.ops import edge_ids, loop_ids


@final
@module
class APPNPConv(nnx.Module):
    r"""Propagation by approximate personalized PageRank: Gasteiger et al., ICLR 2019.

    "Predict then propagate", https://arxiv.org/abs/1810.05997, equation 4, without its softmax. In matrices, with Ã
    that of `GCNConv`, Z_0 = X and X' = Z_K,

        Z_{k+1} = (1 - α) Ã Z_k + α X.

    There are no parameters: the rows to propagate, `[V, F]` of any width, are already predictions. The K steps are one
    `jax.lax.scan`. With dropout, which draws new elements of Ã at every step, they are unrolled. The call also takes edge
    weights, as in `GCNConv`.

    Args:
        num_propagations: K ≥ 1 (default: 10).
        alpha: α, the probability of teleporting back to the vertex itself, in 0 … 1 (default: 0.1).
        edge_dropout: Probability of dropping an edge or loop at a step (default: 0).
        dtype: Dtype of the computation and the result (default: that of the input).
        rngs: Stream `dropout` for the masks.

    Attributes:
        dropout: The `Dropout` of the edges.
    """

    num_propagations: int = 10
    alpha: float = 0.1
    edge_dropout: float = 0.0
    dtype: DTypeLike | None = None
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_counts(num_propagations=self.num_propagations)
        check_fraction("alpha", self.alpha)
        self.dropout = Dropout(self.edge_dropout, rngs=rngs)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
    ) -> Float[Array, "V F"]:
        """Propagate `[V, F]`."""
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


@final
@module
class APPNP(DenseModel):
    r"""Predict then propagate: Gasteiger et al., ICLR 2019, https://arxiv.org/abs/1810.05997.

    A perceptron of `num_layers` dense layers on each vertex separately, then one `APPNPConv` on its output, whose arguments
    the model takes too. The paper has `edge_dropout` 0.5.

    Attributes:
        propagation: The `APPNPConv`.
    """

    num_propagations: int = 10
    alpha: float = 0.1
    edge_dropout: float = 0.0

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        super().__post_init__(rngs)
        shared = {name: getattr(self, name) for name in ("num_propagations", "alpha", "edge_dropout", "dtype")}
        self.propagation = APPNPConv(**shared, rngs=rngs)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Model`."""
        return self.propagation(graph, super().__call__(graph, x))


SPEC = published(
    "appnp",
    APPNP,
    "Gasteiger et al., ICLR 2019, section 5: two layers of 64, without biases (here with them). The paper trains until "
    "neither validation loss nor accuracy has improved for 100 epochs; here, 1000 epochs and the best by accuracy.",
    model__hidden_features=64,
    model__num_propagations=10,
    model__alpha=0.1,
    model__edge_dropout=0.5,
    optimizer__weight_decay=5e-3,
    train__epochs=1000,
)
