"""The graph attention network of Veličković et al."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.graph import Graph
from dorylax.layers.gat import GATConv
from dorylax.layers.models.skeleton import Activation, Skeleton, layer_widths
from dorylax.layers.norm import NormKind


@final
class GAT(nnx.Module):
    r"""Graph attention network: Veličković et al., ICLR 2018, https://arxiv.org/abs/1710.10903, section 3.3.

    `num_layers` times `GATConv`: hidden layers concatenate their heads, so that hidden rows are
    `heads · hidden_features` wide; the last layer averages its heads. The published model for cora is 8 heads of 8
    features and one output head; for pubmed it has 8 output heads.

    Args:
        in_features: width of the input rows.
        hidden_features: width of one head's hidden rows.
        out_features: width of the output rows: the number of classes.
        num_layers: number of layers; 1 has no hidden rows (default: 2).
        heads: heads of each hidden layer, concatenated (default: 8).
        output_heads: heads of the last layer, averaged (default: 1).
        dropout: probability of dropping an element of each layer's input (default: 0.6).
        norm: "none", "layer" or "rms", between layer and activation (default: "none").
        residual: whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        attention_dropout: probability of dropping an attention coefficient (default: 0.6).
        activation: σ, between layers (default: ELU).
        dtype: dtype of the computation and the result (default: that of the input).
        param_dtype: dtype of the parameters (default: float32).
        rngs: streams `params` and `dropout`.

    Attributes:
        convs: the layers, first to last.
        skeleton: dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: a width or `num_layers` below 1, `dropout` outside 0 … 1, no such norm, heads below 1.

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
        attention_dropout: float = 0.6,
        activation: Activation = jax.nn.elu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        per_head = layer_widths(in_features, hidden_features, out_features, num_layers)
        last = num_layers - 1
        widths = [
            (fan_in if depth == 0 else heads * fan_in, fan_out if depth == last else heads * fan_out)
            for depth, (fan_in, fan_out) in enumerate(per_head)
        ]
        self.convs = nnx.List(
            [
                GATConv(
                    widths[depth][0],
                    fan_out,
                    heads=output_heads if depth == last else heads,
                    concat=depth < last,
                    attention_dropout=attention_dropout,
                    dtype=dtype,
                    param_dtype=param_dtype,
                    rngs=rngs,
                )
                for depth, (_, fan_out) in enumerate(per_head)
            ]
        )
        self.skeleton = Skeleton(
            widths,
            dropout=dropout,
            norm=norm,
            residual=residual,
            activation=activation,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

    def __call__(self, graph: Graph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Gives each vertex of `graph` its row of `[V, out_features]` from the features `x [V, in_features]`."""
        return self.skeleton(list(self.convs), graph, x)
