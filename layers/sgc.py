"""The simplified graph convolution of Wu et al. Its model is `dorylax.layers.models.sgc`."""

from __future__ import annotations

from typing import final

import jax
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
class SGConv(nnx.Module):
    r"""Simplified graph convolution: Wu et al., "Simplifying graph convolutional networks", ICML 2019.

    Paper: https://arxiv.org/abs/1902.07153, section 2.2, without its softmax. In matrices, with Ã that of `GCNConv`,

        X' = Ã^K X W + b

    and for one vertex, over its in-neighbours and itself, K times x_v ← Σ_{u ∈ N(v) ∪ {v}} w_uv / √(d_u d_v) · x_u,
    then x'_v = W^T x_v + b.

    The propagation is without parameters, so its result is the same in all epochs.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        num_propagations: K (default: 2).
        use_bias: Whether to add b (default: True).
        kernel_init: Initialiser of W (default: Glorot uniform).
        bias_init: Initialiser of b (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for W and b.

    Attributes:
        kernel: W `[in_features, out_features]`.
        bias: b `[out_features]`, or None.

    Raises:
        ValueError: `num_propagations` < 1.

    Shapes:
        - input: graph with V vertices and E edges, features `[V, in_features]`, edge weights w `[E]` (optional)
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_propagations: int = 2,
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        if num_propagations < 1:
            raise ValueError(f"num_propagations must be ≥ 1, got {num_propagations}")
        self.in_features = in_features
        self.out_features = out_features
        self.num_propagations = num_propagations
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
            edge_weight: `[E]`, by edge id, w ≥ 0 (default: all ones), as in `GCNConv`.

        Returns:
            `[V, out_features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`.
        """
        check_width("SGConv", x, self.in_features)
        bias = None if self.bias is None else self.bias[...]
        x, kernel, bias, weight = follow_input((x, self.kernel[...], bias, edge_weight), dtype=self.dtype)
        adjacency = normalised_adjacency(graph, x, weight)
        for _ in range(self.num_propagations):
            x = adjacency.times(x)
        y: jax.Array = x @ kernel
        return y if bias is None else y + bias[None]
