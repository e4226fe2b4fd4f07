"""The graph convolution with initial residual and identity mapping of Chen et al.

Its model is `dorylax.layers.models.gcnii`.
"""

from __future__ import annotations

import math
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import check_alpha, normalised_adjacency
from dorylax.layers.initializers import glorot_uniform
from dorylax.layers.inputs import check_width, follow_input


@final
class GCN2Conv(nnx.Module):
    r"""Graph convolution for deep networks: Chen et al., "Simple and deep graph convolutional networks", ICML 2020.

    Paper: https://arxiv.org/abs/2007.02133, equation 5, without its activation. In matrices, with Ã that of `GCNConv`,
    X_0 the rows before the first such layer, and β = log(θ/l + 1) for layer l = 1, 2, …,

        X' = H ((1 - β) I + β W),    H = (1 - α) Ã X + α X_0

    or, with a separate matrix for α X_0 (the paper's GCNII*),

        X' = (1 - α) Ã X ((1 - β) I + β W) + α X_0 ((1 - β) I + β W_0)

    and for one vertex, over its in-neighbours and itself, with h_v = (1 - α) Σ_u w_uv / √(d_u d_v) · x_u + α x_0,v,

        x'_v = (1 - β) h_v + β W^T h_v.

    Args:
        features: Width of the input and output rows.
        alpha: Α, the share of X_0 (default: 0.1).
        theta: Θ, the strength of the matrices (default: 0.5).
        layer: l, the place of the layer in its network, from 1 (default: 1).
        share_weights: Whether W_0 is W (default: True).
        kernel_init: Initialiser of W and W_0 (default: Glorot uniform).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for the parameters.

    Attributes:
        kernel: W `[features, features]`.
        kernel_initial: W_0 `[features, features]`; None when shared.
        beta: Β.

    Raises:
        ValueError: `alpha` outside 0 … 1, `theta` ≤ 0, `layer` < 1.

    Shapes:
        - input: graph with V vertices and E edges, rows `[V, features]`, first rows `[V, features]`, edge weights w
          `[E]` (optional)
        - output: `[V, features]`
    """

    def __init__(
        self,
        features: int,
        *,
        alpha: float = 0.1,
        theta: float = 0.5,
        layer: int = 1,
        share_weights: bool = True,
        kernel_init: Initializer = glorot_uniform,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        check_alpha(alpha)
        if not theta > 0:
            raise ValueError(f"theta must be > 0, got {theta}")
        if layer < 1:
            raise ValueError(f"layer must be ≥ 1, the place of the layer in its network; got {layer}")
        self.features = features
        self.alpha = alpha
        self.beta = math.log(theta / layer + 1)
        self.dtype = dtype
        self.kernel = nnx.Param(kernel_init(rngs.params(), (features, features), param_dtype))
        self.kernel_initial = nnx.data(
            None if share_weights else nnx.Param(kernel_init(rngs.params(), (features, features), param_dtype))
        )

    def __call__(
        self,
        graph: CompressedGraph,
        x: Float[Array, "V F"],
        initial: Float[Array, "V F"],
        edge_weight: Float[Array, " E"] | None = None,
    ) -> Float[Array, "V F"]:
        """Apply the layer.

        Args:
            graph: V vertices, E edges.
            x: Rows `[V, features]`.
            initial: X_0, the rows before the first layer, `[V, features]`.
            edge_weight: `[E]`, by edge id, w ≥ 0 (default: all ones), as in `GCNConv`.

        Returns:
            `[V, features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` or `initial` is not `[V, features]`.
        """
        check_width("GCN2Conv", x, self.features)
        check_width("GCN2Conv", initial, self.features)
        kernel_initial = None if self.kernel_initial is None else self.kernel_initial[...]
        x, initial, kernel, kernel_initial, weight = follow_input(
            (x, initial, self.kernel[...], kernel_initial, edge_weight), dtype=self.dtype
        )
        propagated = (1 - self.alpha) * normalised_adjacency(graph, x, weight).times(x)
        first = self.alpha * initial
        if kernel_initial is None:
            return (propagated + first) @ self._mapping(kernel)
        return propagated @ self._mapping(kernel) + first @ self._mapping(kernel_initial)

    def _mapping(self, kernel: Float[Array, "F F"]) -> Float[Array, "F F"]:
        """Return (1 - β) I + β W as one matrix, so that a layer is a single product of its rows.

        If (1 - β) H were added to β H W instead, rows would depend on those of all earlier layers through elementwise
        operations only. XLA fuses such chains, and recomputes each in every layer: time quadratic in the depth.
        """
        mapping: jax.Array = (1 - self.beta) * jnp.eye(self.features, dtype=kernel.dtype) + self.beta * kernel
        return mapping
