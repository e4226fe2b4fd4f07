"""The message-passing network of Gilmer et al., for vertices."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.jumping import JumpKind
from dorylax.layers.models.skeleton import Activation, Layer, Skeleton, layer_widths
from dorylax.layers.mpnn import MPNNConv
from dorylax.layers.norm import NormKind
from dorylax.layers.sage import Aggregation


@final
class MPNN(nnx.Module):
    r"""Message-passing network: Gilmer et al., ICML 2017, https://arxiv.org/abs/1704.01212, without its readout.

    `num_layers` times `MPNNConv`, whose perceptrons are `hidden_features` wide inside, with separate parameters for each
    layer. Every layer reads the same edge features.

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of the hidden rows, of the messages, and inside the perceptrons.
        out_features: Width of the output rows: the number of classes.
        num_layers: Number of layers; 1 means no hidden rows (default: 2).
        dropout: Probability of dropping an element of each layer's input (default: 0.5).
        norm: Normalisation between layer and activation (`layers.norm.make_norm`; default: "none").
        residual: Whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: Jumping knowledge: "none", or "concat" or "max" of all layers' rows, followed by a linear output layer
            (default: "none").
        aggregation: "sum", "mean" or "max" (default: "sum").
        edge_features: D, width of the rows of edge features; 0: no edge features (default: 0).
        activation: Σ, between layers (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: A width or `num_layers` below 1, `dropout` outside 0 … 1, unknown norm, jk or aggregation,
            `edge_features` below 0.

    Shapes:
        - input: graph with V vertices and E edges, features `[V, in_features]`, edge features `[E, edge_features]` by
          edge id (unless `edge_features` is 0)
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
        aggregation: Aggregation = "sum",
        edge_features: int = 0,
        activation: Activation = jax.nn.relu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        widths = layer_widths(in_features, hidden_features, out_features, num_layers, jk)
        self.convs = nnx.List(
            [
                MPNNConv(
                    *pair,
                    hidden_features=hidden_features,
                    edge_features=edge_features,
                    aggregation=aggregation,
                    dtype=dtype,
                    param_dtype=param_dtype,
                    rngs=rngs,
                )
                for pair in widths
            ]
        )
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

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edges: Float[Array, "E D"] | None = None
    ) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`.

        Args:
            graph: V vertices, E edges.
            x: Features of the vertices `[V, in_features]`.
            edges: Features of the edges `[E, edge_features]`, by edge id; None if `edge_features` is 0.
        """
        return self.skeleton([_with_edges(conv, edges) for conv in self.convs], graph, x)


def _with_edges(conv: MPNNConv, edges: jax.Array | None) -> Layer:
    """Wrap a message-passing layer in the signature of a layer without edge features."""

    def layer(graph: CompressedGraph, x: jax.Array) -> jax.Array:
        return conv(graph, x, edges)

    return layer
