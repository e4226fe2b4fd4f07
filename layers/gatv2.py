"""The graph attention layer of Brody et al. Its model is `dorylax.layers.models.gatv2`."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.attention import attend
from dorylax.layers.dropout import Dropout
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input
from dorylax.ops import scatter_dst, scatter_src


@final
class GATv2Conv(nnx.Module):
    r"""Graph attention in which each vertex ranks its neighbours differently: Brody et al., ICLR 2022.

    "How attentive are graph attention networks?", https://arxiv.org/abs/2105.14491, equation 7. In matrices, with K
    heads and P_k the matrix of that head's attention coefficients (row v sums to 1 and is zero where Â = A + I is),

        X' = ‖_k P_k X W_l,k + b    (heads concatenated)    or    X' = 1/K Σ_k P_k X W_l,k + b    (heads averaged)

    and for one vertex, in head k, over its in-neighbours and itself, with z_u = W_l,k^T x_u + b_l,k,

        x'_v = Σ_{u ∈ N(v) ∪ {v}} α_uv z_u,
        α_uv = softmax over u of a_k · LeakyReLU(z_u + W_r,k^T x_v + b_r,k).

    `GATConv` applies the LeakyReLU after the product, so that all vertices rank neighbours in the same way. GATv2 costs more
    per
    edge: the LeakyReLU applies to `[E, K·F]` instead of `[E, K]`. The loop of a vertex without one is a term of the softmax
    and of the sum, never an edge. Dropout, when training, falls on α.

    Args:
        in_features: Width of the input rows.
        out_features: F, width of one head's output.
        heads: K, number of heads (default: 8).
        concat: Concatenate the heads (width K·F) or average them (width F) (default: True).
        negative_slope: Negative slope of the LeakyReLU (default: 0.2).
        attention_dropout: Probability of dropping a coefficient (default: 0).
        share_weights: Whether W_r is W_l and b_r is b_l (default: False).
        use_bias: Whether to add b, b_l and b_r (default: True).
        kernel_init: Initialiser of W_l and W_r, each made as `[in_features, K·F]` (default: Glorot uniform).
        attention_init: Initialiser of a, made as `[K, F]` (default: Glorot uniform).
        bias_init: Initialiser of the biases (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` for the parameters and `dropout` for the masks.

    Attributes:
        kernel_source: W_l `[in_features, K·F]`, applied to the neighbour u; head k in columns k·F … (k+1)·F - 1.
        kernel_target: W_r `[in_features, K·F]`, applied to v itself; None when shared.
        bias_source: B_l `[K·F]`, or None.
        bias_target: B_r `[K·F]`, or None.
        attention: A `[K, F]`.
        bias: b `[K·F]` or `[F]`, or None.
        dropout: The `Dropout` of the coefficients.

    Raises:
        ValueError: `heads` < 1, or `attention_dropout` outside 0 … 1.

    Shapes:
        - input: graph with V vertices and E edges, features `[V, in_features]`
        - output: `[V, K·F]` when concatenated, `[V, F]` when averaged
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: int = 8,
        concat: bool = True,
        negative_slope: float = 0.2,
        attention_dropout: float = 0.0,
        share_weights: bool = False,
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        attention_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        if heads < 1:
            raise ValueError(f"heads must be ≥ 1, got {heads}")
        self.in_features = in_features
        self.out_features = out_features
        self.heads = heads
        self.concat = concat
        self.negative_slope = negative_slope
        self.dtype = dtype
        self.total_features = heads * out_features if concat else out_features

        def kernel() -> nnx.Param[jax.Array]:
            return nnx.Param(kernel_init(rngs.params(), (in_features, heads * out_features), param_dtype))

        def bias(width: int) -> nnx.Param[jax.Array]:
            return nnx.Param(bias_init(rngs.params(), (width,), param_dtype))

        self.kernel_source = kernel()
        self.kernel_target = nnx.data(None if share_weights else kernel())
        self.attention = nnx.Param(attention_init(rngs.params(), (heads, out_features), param_dtype))
        self.bias_source = nnx.data(bias(heads * out_features) if use_bias else None)
        self.bias_target = nnx.data(bias(heads * out_features) if use_bias and not share_weights else None)
        self.bias = nnx.data(bias(self.total_features) if use_bias else None)
        self.dropout = Dropout(attention_dropout, rngs=rngs)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Apply the layer.

        Args:
            graph: V vertices, E edges.
            x: Features `[V, in_features]`.

        Returns:
            `[V, K·F]` or `[V, F]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`.
        """
        check_width("GATv2Conv", x, self.in_features)
        attention, bias = self.attention[...], None if self.bias is None else self.bias[...]
        rows, attention, bias = follow_input((x, attention, bias), dtype=self.dtype)
        source = self._project(rows, self.kernel_source, self.bias_source)
        target = source if self.kernel_target is None else self._project(rows, self.kernel_target, self.bias_target)

        def score(sums: jax.Array) -> jax.Array:
            scores: jax.Array = (jax.nn.leaky_relu(sums, self.negative_slope) * attention[None]).sum(-1)
            return scores

        scores = score(scatter_src(graph, source) + scatter_dst(graph, target))
        y = attend(graph, source, scores, score(source + target), self.dropout, layer=self)
        y = y.reshape(x.shape[0], self.total_features) if self.concat else y.mean(axis=1)
        return y if bias is None else y + bias[None]

    def _project(
        self, x: Float[Array, "V F"], kernel: nnx.Param[jax.Array], bias: nnx.Param[jax.Array] | None
    ) -> Float[Array, "V H C"]:
        """Return `x W + b`, head by head, in the dtype of `x`."""
        x, matrix, offset = follow_input((x, kernel[...], None if bias is None else bias[...]))
        z: jax.Array = x @ matrix if offset is None else x @ matrix + offset[None]
        return z.reshape(x.shape[0], self.heads, self.out_features)
