"""The GraphSAGE layer of Hamilton et al., and its model."""

from __future__ import annotations

from typing import Literal, final

import jax
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import Conv, check_choice, module
from dorylax.layers.model import Model
from dorylax.layers.recipes import published
from dorylax.ops import gather

Aggregation = Literal["mean", "sum", "max"]


@final
@module
class SAGEConv(Conv):
    r"""GraphSAGE: Hamilton et al., "Inductive representation learning on large graphs", NeurIPS 2017.

    Paper: https://arxiv.org/abs/1706.02216, algorithm 1, on all neighbors (no sampling) and without line 7's division
    by the norm. The paper's product with a concatenation is the sum of two products. For one vertex, over its in-neighbors,

        x'_v = W_self^T x_v + W_neighbours^T · aggregate({x_u : u ∈ N(v)}) + b.

    A vertex without in-neighbors aggregates to zero. No loops are added: W_self is the vertex's own term.
    "max" is the elementwise maximum of the raw rows (the paper's pooling applies a dense layer first; add one for that).

    Args:
        aggregation: "mean", "sum" or "max" (default: "mean").

    Other arguments are those of `Conv`.

    Attributes:
        kernel_self, kernel_neighbours: W_self and W_neighbours, each `[in_features, out_features]`.
        bias: b `[out_features]`, or None.
    """

    aggregation: Aggregation = "mean"

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_choice("aggregation", self.aggregation, Aggregation)
        self.kernel_self = self.new_kernel(rngs, self.in_features, self.out_features)
        self.kernel_neighbours = self.new_kernel(rngs, self.in_features, self.out_features)
        self.bias = nnx.data(self.new_bias(rngs, self.out_features))

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Conv`."""
        x, kernel_self, kernel_neighbours, bias = self.cast(x, self.kernel_self, self.kernel_neighbours, self.bias)
        y: jax.Array = x @ kernel_self + gather(graph, x, reduce=self.aggregation) @ kernel_neighbours
        return y if bias is None else y + bias[None]


@final
@module
class GraphSAGE(Model):
    """GraphSAGE: Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, over all in-neighbors."""

    conv = SAGEConv
    aggregation: Aggregation = "mean"


SPEC = published(
    "sage",
    GraphSAGE,
    "Hamilton et al., NeurIPS 2017: two layers, mean, Adam, ReLU. Width 64 and the rest, which the paper's inductive "
    "experiments do not give, are as in gcn.",
    model__hidden_features=64,
    model__aggregation="mean",
)
