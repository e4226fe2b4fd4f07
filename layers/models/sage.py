"""The GraphSAGE network of Hamilton et al., on all neighbours."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.jumping import JumpKind
from dorylax.layers.models.skeleton import Activation, Skeleton, layer_widths
from dorylax.layers.norm import NormKind
from dorylax.layers.sage import Aggregation, SAGEConv


@final
class GraphSAGE(nnx.Module):
    r"""GraphSAGE: Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216.

    `num_layers` times `SAGEConv`, each vertex aggregating over all its in-neighbours.

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of the hidden rows.
        out_features: Width of the output rows: the number of classes.
        num_layers: Number of layers; 1 means no hidden rows (default: 2).
        dropout: Probability of dropping an element of each layer's input (default: 0.5).
        norm: Normalisation between layer and activation (`layers.norm.make_norm`; default: "none").
        residual: Whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: Jumping knowledge: "none", or "concat" or "max" of all layers' rows, followed by a linear output layer
            (default: "none").
        aggregation: "mean", "sum" or "max" (default: "mean").
        activation: Σ, between layers (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: A width or `num_layers` below 1, `dropout` outside 0 … 1, unknown norm, jk or aggregation.

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
        aggregation: Aggregation = "mean",
        activation: Activation = jax.nn.relu,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        widths = layer_widths(in_features, hidden_features, out_features, num_layers, jk)
        self.convs = nnx.List(
            [
                SAGEConv(*pair, aggregation=aggregation, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
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

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`, from features `x [V, in_features]`."""
        return self.skeleton(list(self.convs), graph, x)
