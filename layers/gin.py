"""The graph isomorphism layer of Xu et al. Its model is `dorylax.layers.models.gin`."""

from __future__ import annotations

import functools
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input
from dorylax.layers.linear import linear
from dorylax.layers.norm import NormKind, apply_norm, make_norm
from dorylax.ops import gather


@final
class GINConv(nnx.Module):
    r"""Graph isomorphism layer: Xu et al., "How powerful are graph neural networks?", ICLR 2019.

    Paper: https://arxiv.org/abs/1810.00826, equation 4.1, with a perceptron h of one hidden layer. In matrices,

        X' = h((A + (1 + ε) I) X),    h(Y) = ReLU(norm(Y W_1 + b_1)) W_2 + b_2

    and for one vertex, over its in-neighbours,

        x'_v = h((1 + ε) x_v + Σ_{u ∈ N(v)} x_u).

    An edge of v to itself counts as a neighbour.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        hidden_features: Width inside h (default: `out_features`).
        epsilon: Ε, or its initial value (default: 0).
        train_epsilon: Whether ε is a parameter (GIN-ε) or fixed (GIN-0, which the paper found to generalise slightly
            better) (default: False).
        norm: Normalisation inside h (`layers.norm.make_norm`); the paper uses "batch" (default: "none").
        use_bias: Whether h has biases (default: True).
        kernel_init: Initialiser of the kernels of h (default: Glorot uniform).
        bias_init: Initialiser of the biases of h (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for the parameters.

    Attributes:
        hidden: `nnx.Linear`, W_1 and b_1.
        norm: The normalisation, or None.
        out: `nnx.Linear`, W_2 and b_2.
        epsilon: Ε, a scalar `nnx.Param` when trained, else a float.

    Raises:
        ValueError: Unknown norm.

    Shapes:
        - input: graph with V vertices, features `[V, in_features]`
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int | None = None,
        epsilon: float = 0.0,
        train_epsilon: bool = False,
        norm: NormKind = "none",
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        hidden_features = out_features if hidden_features is None else hidden_features
        self.in_features = in_features
        self.out_features = out_features
        self.dtype = dtype
        dense = functools.partial(
            linear,
            use_bias=use_bias,
            kernel_init=kernel_init,
            bias_init=bias_init,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        self.hidden = dense(in_features, hidden_features)
        self.norm = nnx.data(make_norm(norm, hidden_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs))
        self.out = dense(hidden_features, out_features)
        self.epsilon = nnx.Param(jnp.asarray(epsilon, param_dtype)) if train_epsilon else epsilon

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Apply the layer.

        Args:
            graph: V vertices.
            x: Features `[V, in_features]`.

        Returns:
            `[V, out_features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`.
        """
        check_width("GINConv", x, self.in_features)
        epsilon = self.epsilon[...] if isinstance(self.epsilon, nnx.Param) else jnp.asarray(self.epsilon)
        x, epsilon = follow_input((x, epsilon), dtype=self.dtype)
        h = self.hidden((1 + epsilon) * x + gather(graph, x))
        return self.out(jax.nn.relu(h if self.norm is None else apply_norm(self.norm, h, graph)))
