"""A perceptron on each vertex separately: the baseline for models that use the edges."""

from __future__ import annotations

from typing import Any, final

import jax
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import check_width, linear, module
from dorylax.layers.model import Layer, Model
from dorylax.layers.recipes import published


@module
class DenseModel(Model):
    """Base class of models whose layers are dense: `nnx.Linear`."""

    def new_conv(self, depth: int, in_features: int, out_features: int, **options: Any) -> nnx.Linear:  # noqa: ARG002
        """Return a new dense layer."""
        return linear(in_features, out_features, dtype=self.dtype, param_dtype=self.param_dtype, **options)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`; only the vertices' ids are read from `graph`, for dropout."""
        return self.skeleton([self._on_rows(dense) for dense in self.convs], graph, x)

    def _on_rows(self, dense: nnx.Linear) -> Layer:
        """Wrap a dense layer in the signature of a graph layer."""

        def layer(graph: CompressedGraph, x: jax.Array) -> jax.Array:  # noqa: ARG001
            check_width(type(self).__name__, x, dense.in_features)
            return dense(x)

        return layer


@final
@module
class MLP(DenseModel):
    """Multilayer perceptron on each vertex's features, the baseline that ignores the edges."""


SPEC = published("mlp", MLP, "The baseline of Kipf & Welling, ICLR 2017, table 2: the recipe of gcn without the edges.")
