"""The graph attention layer of Brody et al., and its model."""

from __future__ import annotations

from typing import Any, final

import jax
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import check_counts, module
from dorylax.layers.dropout import Dropout
from dorylax.layers.gat import RECIPE, Attention, AttentionModel, attend
from dorylax.layers.recipes import published
from dorylax.ops import scatter_dst, scatter_src


@final
@module
class GATv2Conv(Attention):
    r"""Graph attention in which each vertex ranks its neighbors differently: Brody et al., ICLR 2022.

    "How attentive are graph attention networks?", https://arxiv.org/abs/2105.14491, equation 7: as `GATConv`, with
    z_u = W_l,k^T x_u + b_l,k in head k and

        α_uv = softmax over u of a_k · LeakyReLU(z_u + W_r,k^T x_v + b_r,k),    x'_v = Σ_{u ∈ N(v) ∪ {v}} α_uv z_u.

    `GATConv` applies the LeakyReLU after the product, so that all vertices rank neighbors in the same way. GATv2 costs
    more per edge: the LeakyReLU applies to `[E, K·F]` instead of `[E, K]`.

    Args:
        share_weights: Whether W_r is W_l and b_r is b_l (default: False).

    Attributes:
        kernel_source, bias_source: W_l `[in_features, K·F]`, applied to the neighbor u, and b_l `[K·F]` or None; head k in
            columns k·F … (k+1)·F - 1.
        kernel_target, bias_target: W_r and b_r, applied to v itself; None when shared.
        attention: a `[K, F]`.
        bias: b `[K·F]` or `[F]`, or None.
    """

    share_weights: bool = False

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_counts(heads=self.heads)
        width = self.heads * self.out_features
        self.kernel_source = self.new_kernel(rngs, self.in_features, width)
        self.kernel_target = nnx.data(None if self.share_weights else self.new_kernel(rngs, self.in_features, width))
        self.attention = self.new_attention(rngs)
        self.bias_source = nnx.data(self.new_bias(rngs, width))
        self.bias_target = nnx.data(None if self.share_weights else self.new_bias(rngs, width))
        self.bias = nnx.data(self.new_bias(rngs, self.total_features))
        self.dropout = Dropout(self.attention_dropout, rngs=rngs)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Conv`."""
        x, attention, bias = self.cast(x, self.attention, self.bias)
        source = self._project(x, self.kernel_source, self.bias_source)
        target = source if self.kernel_target is None else self._project(x, self.kernel_target, self.bias_target)

        def score(sums: jax.Array) -> jax.Array:
            scores: jax.Array = (jax.nn.leaky_relu(sums, self.negative_slope) * attention[None]).sum(-1)
            return scores

        scores = score(scatter_src(graph, source) + scatter_dst(graph, target))
        return self.joined(attend(graph, source, scores, score(source + target), self.dropout, layer=self), bias)

    def _project(self, x: Float[Array, "V F"], kernel: Any, bias: Any) -> Float[Array, "V H C"]:
        x, matrix, offset = self.cast(x, kernel, bias)
        z: jax.Array = x @ matrix if offset is None else x @ matrix + offset[None]
        return z.reshape(x.shape[0], self.heads, self.out_features)


@final
@module
class GATv2(AttentionModel):
    """Graph attention network, version 2: Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491."""

    conv = GATv2Conv
    share_weights: bool = False


SPEC = published(
    "gatv2",
    GATv2,
    "Brody et al., ICLR 2022. The paper has no recipe for citation graphs: everything is as in gat, with a matrix for "
    "each end of an edge.",
    **RECIPE,
    model__share_weights=False,
)
