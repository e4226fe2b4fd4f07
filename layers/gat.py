"""The graph attention layer of Veličković et al. Its model is `dorylax.layers.models.gat`."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.attention import attend, kept
from dorylax.layers.dropout import Dropout
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input
from dorylax.ops import additive_attention, missing_self_loops, scatter_dst, scatter_src


@final
class GATConv(nnx.Module):
    r"""Graph attention: Veličković et al., "Graph attention networks", ICLR 2018.

    Paper: https://arxiv.org/abs/1710.10903, equations 1 to 6. In matrices, with K heads and P_k the matrix of that
    head's attention coefficients (row v sums to 1 and is zero where Â = A + I is),

        X' = ‖_k P_k X W_k + b    (heads concatenated)    or    X' = 1/K Σ_k P_k X W_k + b    (heads averaged)

    and for one vertex, in head k, over its in-neighbours and itself,

        x'_v = Σ_{u ∈ N(v) ∪ {v}} α_uv W_k^T x_u,
        α_uv = softmax over u of LeakyReLU(s_k · W_k^T x_u + t_k · W_k^T x_v).

    The loop of a vertex without one is a term of the softmax and of the sum, never an edge. Dropout, when training,
    falls on α.

    Args:
        in_features: Width of the input rows.
        out_features: F, width of one head's output.
        heads: K, number of heads (default: 8).
        concat: Concatenate the heads (width K·F) or average them (width F) (default: True).
        negative_slope: Negative slope of the LeakyReLU (default: 0.2, as in the paper).
        attention_dropout: Probability of dropping a coefficient (default: 0).
        use_bias: Whether to add b (default: True).
        kernel_init: Initialiser of W, made as `[in_features, K·F]` (default: Glorot uniform).
        attention_init: Initialiser of s and t, made as `[K, F]` (default: Glorot uniform).
        bias_init: Initialiser of b (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` for the parameters and `dropout` for the masks.

    Attributes:
        kernel: W `[in_features, K·F]`, head k in columns k·F … (k+1)·F - 1.
        attention_source: s `[K, F]`, applied to the neighbour u.
        attention_target: t `[K, F]`, applied to v itself.
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
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, heads * out_features), param_dtype))
        self.attention_source = nnx.Param(attention_init(rngs.params(), (heads, out_features), param_dtype))
        self.attention_target = nnx.Param(attention_init(rngs.params(), (heads, out_features), param_dtype))
        self.bias = nnx.data(
            nnx.Param(bias_init(rngs.params(), (self.total_features,), param_dtype)) if use_bias else None
        )
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
        check_width("GATConv", x, self.in_features)
        bias = None if self.bias is None else self.bias[...]
        x, kernel, source, target, bias = follow_input(
            (x, self.kernel[...], self.attention_source[...], self.attention_target[...], bias), dtype=self.dtype
        )
        z = (x @ kernel).reshape(x.shape[0], self.heads, self.out_features)
        source_scores, target_scores = (z * source[None]).sum(-1), (z * target[None]).sum(-1)
        y = self._attend(graph, z, source_scores, target_scores)
        y = y.reshape(x.shape[0], self.total_features) if self.concat else y.mean(axis=1)
        return y if bias is None else y + bias[None]

    def _attend(
        self, graph: CompressedGraph, z: Float[Array, "V K F"], source: Float[Array, "V K"], target: Float[Array, "V K"]
    ) -> Float[Array, "V K F"]:
        slope = self.negative_slope
        if not self.dropout.active and not kept(self):
            loops = missing_self_loops(graph, z.dtype)
            return additive_attention(graph, z, source, target, negative_slope=slope, loops=loops)
        # Dropout keys coefficients by their edges' ids, so separate coefficients are needed; also for sowing them.
        scores = jax.nn.leaky_relu(scatter_src(graph, source) + scatter_dst(graph, target), slope)
        return attend(graph, z, scores, jax.nn.leaky_relu(source + target, slope), self.dropout, layer=self)
