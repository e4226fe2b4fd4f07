"""A perceptron on each vertex separately: the baseline for models that use the edges."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.inputs import check_width
from dorylax.layers.jumping import JumpKind
from dorylax.layers.linear import linear
from dorylax.layers.models.skeleton import Activation, Layer, Skeleton, layer_widths
from dorylax.layers.norm import NormKind


@final
class MLP(nnx.Module):
    r"""Multilayer perceptron on each vertex's features, the baseline that ignores the edges.

    `num_layers` dense layers; in matrices, for two, Z = σ(X W_0 + b_0) W_1 + b_1. Called like the other models.

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
        activation: Σ, between layers (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: A width or `num_layers` below 1, `dropout` outside 0 … 1, unknown norm or jk.

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

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, each row computed from the vertex's row of `x [V, in_features]`.

        Only the vertices' ids are read from `graph`, for dropout.
        """
        return self.skeleton([alone("MLP", dense) for dense in self.convs], graph, x)


def alone(model: str, dense: nnx.Linear) -> Layer:
    """Wrap a dense layer in the signature of a graph layer."""

    def layer(graph: CompressedGraph, x: jax.Array) -> jax.Array:  # noqa: ARG001
        check_width(model, x, dense.in_features)
        return dense(x)

    return layer
