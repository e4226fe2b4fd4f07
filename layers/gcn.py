"""The graph convolution of Kipf & Welling, and its model."""

from __future__ import annotations

from typing import final

from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import normalised_adjacency
from dorylax.layers.base import Conv, module
from dorylax.layers.model import Model
from dorylax.layers.recipes import published


@final
@module
class GCNConv(Conv):
    r"""Graph convolution: Kipf & Welling, "Semi-supervised classification with graph convolutional networks", 2017.

    Paper: https://arxiv.org/abs/1609.02907, equations 2 and 8. In matrices, with A[v, u] = 1 for an edge u → v,

        X' = D̂^(-1/2) Â D̂^(-1/2) X W + b,    Â = A + I where A has no loop,    D̂ = diag(Â 1)

    and for one vertex, over its in-neighbors and itself,

        x'_v = Σ_{u ∈ N(v) ∪ {v}} w_uv / √(d_u d_v) · W^T x_u + b,    d_v = Σ_{u ∈ N(v) ∪ {v}} w_uv.

    `dorylax.layers.adjacency` multiplies by Ã = D̂^(-1/2) Â D̂^(-1/2), after the product with W. The call also takes
    edge weights w `[E]` ≥ 0 by edge id (default: all ones); an added loop has weight 1. All arguments are those of `Conv`.
    """

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
    ) -> Float[Array, "V C"]:
        """See `Conv`."""
        x, kernel, bias, weight = self.cast(x, self.kernel, self.bias, edge_weight)
        y = normalised_adjacency(graph, x, weight).times(x @ kernel)
        return y if bias is None else y + bias[None]


@final
@module
class GCN(Model):
    r"""Graph convolutional network: Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907, equation 9.

    For two layers, with Ã that of `GCNConv`, Z = Ã σ(Ã X W_0 + b_0) W_1 + b_1.
    """

    conv = GCNConv


SPEC = published(
    "gcn",
    GCN,
    "Kipf & Welling, ICLR 2017, section 5.2. All 200 epochs are run, without the paper's early stopping after 10 epochs "
    "without a lower validation loss.",
)
