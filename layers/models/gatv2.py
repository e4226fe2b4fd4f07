"""The graph attention network of Brody et al."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.gatv2 import GATv2Conv
from dorylax.layers.jumping import JumpKind
from dorylax.layers.models.gat import head_layers
from dorylax.layers.models.skeleton import Activation, Skeleton
from dorylax.layers.norm import NormKind


@final
class GATv2(nnx.Module):
    r"""Graph attention network, version 2: Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491.

    `num_layers` times `GATv2Conv`, otherwise as `GAT`: hidden layers concatenate their heads, so that hidden rows are
    `heads · hidden_features` wide; the last layer averages its heads.

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of one head's hidden rows.
        out_features: Width of the output rows: the number of classes.
        num_layers: Number of layers; 1 means no hidden rows (default: 2).
        heads: Heads of each hidden layer, concatenated (default: 8).
        output_heads: Heads of the last layer, averaged; with `jk` there is no such layer (default: 1).
        dropout: Probability of dropping an element of each layer's input (default: 0.6).
        norm: Normalisation between layer and activation (`layers.norm.make_norm`; default: "none").
        residual: Whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: Jumping knowledge: "none", or "concat" or "max" of all layers' rows, followed by a linear output layer
            (default: "none").
        attention_dropout: Probability of dropping an attention coefficient (default: 0.6).
        share_weights: Whether both ends of an edge share one matrix (default: False).
        activation: Σ, between layers (default: ELU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: A width or `num_layers` below 1, `dropout` outside 0 … 1, unknown norm or jk, heads below 1.

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
        heads: int = 8,
        output_heads: int = 1,
        dropout: float = 0.6,
        norm: NormKind = "none",
        residual: bool = False,
        jk: JumpKind = "none",
        attention_dropout: float = 0.6,
        share_weights: bool = False,
        activation: Activation = jax.nn.elu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        layers = head_layers(
            in_features, hidden_features, out_features, num_layers, heads=heads, output_heads=output_heads, jk=jk
        )
        self.convs = nnx.List(
            [
                GATv2Conv(
                    layer.in_features,
                    layer.features_per_head,
                    heads=layer.heads,
                    concat=layer.concat,
                    attention_dropout=attention_dropout,
                    share_weights=share_weights,
                    dtype=dtype,
                    param_dtype=param_dtype,
                    rngs=rngs,
                )
                for layer in layers
            ]
        )
        self.skeleton = Skeleton(
            [layer.widths for layer in layers],
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

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`, from features `x [V, in_features]`."""
        return self.skeleton(list(self.convs), graph, x)
