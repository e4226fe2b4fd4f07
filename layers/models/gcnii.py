"""The deep graph convolutional network of Chen et al."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.dropout import Dropout
from dorylax.layers.gcn2 import GCN2Conv
from dorylax.layers.inputs import check_width
from dorylax.layers.linear import linear
from dorylax.layers.models.skeleton import Activation, layer_widths
from dorylax.ops import vertex_ids


@final
class GCNII(nnx.Module):
    r"""GCNII: Chen et al., ICML 2020, https://arxiv.org/abs/2007.02133.

    A linear layer, `num_layers` times `GCN2Conv`, and a linear layer:

        x_0     = σ(dropout(x) W_in + b_in)
        x_{l+1} = σ(GCN2Conv_{l+1}(dropout(x_l), x_0))    for l = 0 … L - 1
        y       = dropout(x_L) W_out + b_out

    The paper goes up to 64 layers. Norms and shortcuts are not options, since the layers themselves allow the depth.

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of the hidden rows.
        out_features: Width of the output rows: the number of classes.
        num_layers: L, number of `GCN2Conv` layers, without the two linear ones (default: 64).
        dropout: Probability of dropping an element of each layer's input (default: 0.6).
        alpha: Α, the share of x_0 in every layer (default: 0.1).
        theta: Θ, the strength of the layers' matrices, log(θ/l + 1) in layer l (default: 0.5).
        share_weights: Whether x_0 goes through the same matrix as the rows of the neighbours; False is the paper's
            GCNII* (default: True).
        activation: Σ (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        linear_in: `nnx.Linear`, W_in and b_in.
        convs: The `GCN2Conv` layers, first to last.
        linear_out: `nnx.Linear`, W_out and b_out.
        dropouts: One `Dropout` per layer, linear ones included.

    Raises:
        ValueError: A width or `num_layers` below 1, `dropout` or `alpha` outside 0 … 1, `theta` ≤ 0.

    Shapes:
        - input: graph with V vertices, features `[V, in_features]`
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        num_layers: int = 64,
        dropout: float = 0.6,
        alpha: float = 0.1,
        theta: float = 0.5,
        share_weights: bool = True,
        activation: Activation = jax.nn.relu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        layer_widths(in_features, hidden_features, out_features, num_layers)  # raises for numbers below 1
        self.in_features = in_features
        self.activation = activation
        self.linear_in = linear(in_features, hidden_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.convs = nnx.List(
            [
                GCN2Conv(
                    hidden_features,
                    alpha=alpha,
                    theta=theta,
                    layer=layer,
                    share_weights=share_weights,
                    dtype=dtype,
                    param_dtype=param_dtype,
                    rngs=rngs,
                )
                for layer in range(1, num_layers + 1)
            ]
        )
        self.linear_out = linear(hidden_features, out_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.dropouts = nnx.List([Dropout(dropout, rngs=rngs) for _ in range(num_layers + 2)])

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`, from features `x [V, in_features]`."""
        check_width("GCNII", x, self.in_features)
        ids = vertex_ids(graph)
        first, *between, last = self.dropouts
        initial = x = self.activation(self.linear_in(first(x, ids)))
        for conv, drop in zip(self.convs, between, strict=True):
            x = self.activation(conv(graph, drop(x, ids), initial))
        return self.linear_out(last(x, ids))
