"""The network of Gasteiger et al. that predicts each vertex separately, then propagates the predictions."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.appnp import APPNPConv
from dorylax.layers.jumping import JumpKind
from dorylax.layers.linear import linear
from dorylax.layers.models.mlp import alone
from dorylax.layers.models.skeleton import Activation, Skeleton, layer_widths
from dorylax.layers.norm import NormKind


@final
class APPNP(nnx.Module):
    r"""Predict then propagate: Gasteiger et al., ICLR 2019, https://arxiv.org/abs/1810.05997.

    A perceptron of `num_layers` dense layers on each vertex separately, then one `APPNPConv` on its output; for two
    layers, Z = propagate(σ(X W_0 + b_0) W_1 + b_1).

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of the hidden rows.
        out_features: Width of the output rows: the number of classes.
        num_layers: Number of dense layers; 1 means no hidden rows (default: 2).
        dropout: Probability of dropping an element of each dense layer's input (default: 0.5).
        norm: Normalisation between layer and activation (`layers.norm.make_norm`; default: "none").
        residual: Whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: Jumping knowledge: "none", or "concat" or "max" of all layers' rows, followed by a linear layer, whose output is
            propagated (default: "none").
        num_propagations: K, the number of propagation steps (default: 10).
        alpha: Α, the probability of teleporting back to the vertex itself (default: 0.1).
        edge_dropout: Probability of dropping an edge or loop at a step; 0 makes the steps one `jax.lax.scan` (default:
            0; the paper has 0.5).
        activation: Σ, between layers (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The dense layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.
        propagation: The `APPNPConv`.

    Raises:
        ValueError: A width, `num_layers` or `num_propagations` below 1, `dropout`, `edge_dropout` or `alpha` outside
            0 … 1, unknown norm or jk.

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
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: NormKind = "none",
        residual: bool = False,
        jk: JumpKind = "none",
        num_propagations: int = 10,
        alpha: float = 0.1,
        edge_dropout: float = 0.0,
        activation: Activation = jax.nn.relu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        widths = layer_widths(in_features, hidden_features, out_features, num_layers, jk)
        self.convs = nnx.List([linear(*pair, dtype=dtype, param_dtype=param_dtype, rngs=rngs) for pair in widths])
        self.skeleton = Skeleton(
            widths,
            out_features,
            dropout=dropout,
            norm=norm,
            residual=residual,
            jk=jk,
            activation=activation,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        self.propagation = APPNPConv(
            num_propagations=num_propagations, alpha=alpha, edge_dropout=edge_dropout, dtype=dtype, rngs=rngs
        )

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`, from features `x [V, in_features]`."""
        predictions = self.skeleton([alone("APPNP", dense) for dense in self.convs], graph, x)
        return self.propagation(graph, predictions)
