"""The graph convolution of Kipf & Welling. Its model is `dorylax.layers.models.gcn`."""

from __future__ import annotations

from typing import final

import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import normalised_adjacency
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input


@final
class GCNConv(nnx.Module):
    r"""Graph convolution: Kipf & Welling, "Semi-supervised classification with graph convolutional networks", 2017.

    Paper: https://arxiv.org/abs/1609.02907, equations 2 and 8. In matrices, with A[v, u] = 1 for an edge u → v,

        X' = D̂^(-1/2) Â D̂^(-1/2) X W + b,    Â = A + I where A has no loop,    D̂ = diag(Â 1)

    and for one vertex, over its in-neighbours and itself,

        x'_v = Σ_{u ∈ N(v) ∪ {v}} w_uv / √(d_u d_v) · W^T x_u + b,    d_v = Σ_{u ∈ N(v) ∪ {v}} w_uv.

    A loop is added only to vertices without one. In a directed graph d is the in-degree at both ends, as in PyG.
    `dorylax.layers.adjacency` multiplies by it, after the product with W.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        use_bias: Whether to add b (default: True).
        kernel_init: Initialiser of W (default: Glorot uniform, as in the paper).
        bias_init: Initialiser of b (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for W and b.

    Attributes:
        kernel: W `[in_features, out_features]`.
        bias: b `[out_features]`, or None.

    Shapes:
        - input: graph with V vertices and E edges, features `[V, in_features]`, edge weights w `[E]` (optional)
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.dtype = dtype
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.data(nnx.Param(bias_init(rngs.params(), (out_features,), param_dtype)) if use_bias else None)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
    ) -> Float[Array, "V C"]:
        """Apply the layer.

        Args:
            graph: V vertices, E edges.
            x: Features `[V, in_features]`.
            edge_weight: `[E]`, by edge id, w ≥ 0 (default: all ones); an added loop has weight 1. A vertex whose
                weights sum to 0 has 1/√d = 0.

        Returns:
            `[V, out_features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`.
        """
        check_width("GCNConv", x, self.in_features)
        bias = None if self.bias is None else self.bias[...]
        x, kernel, bias, weight = follow_input((x, self.kernel[...], bias, edge_weight), dtype=self.dtype)
        y = normalised_adjacency(graph, x, weight).times(x @ kernel)
        return y if bias is None else y + bias[None]
