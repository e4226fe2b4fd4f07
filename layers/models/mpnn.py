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

    `num_layers` times `MPNNConv`, whose perceptrons are `hidden_features` wide inside, each layer with parameters of
    its own. Every layer reads the same edge features.

    Args:
        in_features: width of the input rows.
        hidden_features: width of the hidden rows, of the messages, and inside the perceptrons.
        out_features: width of the output rows: the number of classes.
        num_layers: number of layers; 1 has no hidden rows (default: 2).
        dropout: probability of dropping an element of each layer's input (default: 0.5).
        norm: between layer and activation, by name (`layers.norm.make_norm`; default: "none").
        residual: whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: jumping knowledge: "none", or "concat" or "max" of all layers' rows, none of which then is the output, and a
            linear output layer after it (default: "none").
        aggregation: "sum", "mean" or "max" (default: "sum").
        edge_features: D, width of the rows of edge features; 0: there are none (default: 0).
        activation: σ, between layers (default: ReLU).
        dtype: dtype of the computation and the result (default: that of the input).
        param_dtype: dtype of the parameters (default: float32).
        rngs: streams `params` and `dropout`.

    Attributes:
        convs: the layers, first to last.
        skeleton: dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: a width or `num_layers` below 1, `dropout` outside 0 … 1, no such norm, jk or aggregation,
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
        """Gives each vertex of `graph` its row of `[V, out_features]`.

        Args:
            graph: V vertices, E edges.
            x: features of the vertices `[V, in_features]`.
            edges: features of the edges `[E, edge_features]`, by edge id; None where `edge_features` is 0.
        """
        return self.skeleton([_with_edges(conv, edges) for conv in self.convs], graph, x)


def _with_edges(conv: MPNNConv, edges: jax.Array | None) -> Layer:
    """A message-passing layer, called as a layer without edge features is."""

    def layer(graph: CompressedGraph, x: jax.Array) -> jax.Array:
        return conv(graph, x, edges)

    return layer
