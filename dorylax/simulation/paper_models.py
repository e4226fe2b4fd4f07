"""The Dorylus paper's GCN as its system runs it: neighbours are summed before the product, at the wider width."""

from __future__ import annotations

from typing import final

import jax
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import glorot_uniform
from dorylax.ops import gather


@final
class GatherFirstGCN(nnx.Module):
    """σ(A σ(A X W_0) W_1), for what it takes: the weights of Â, which change no times, are left out.

    Args:
        in_features, hidden_features, out_features: widths of rows.
        rngs: the `params` stream gives the matrices.
    """

    def __init__(self, in_features: int, hidden_features: int, out_features: int, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Param(glorot_uniform(rngs.params(), (in_features, hidden_features), "float32"))
        self.second = nnx.Param(glorot_uniform(rngs.params(), (hidden_features, out_features), "float32"))

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Gives each vertex its row of `[V, out_features]`."""
        hidden = jax.nn.relu(gather(graph, x) @ self.first[...])
        result: jax.Array = gather(graph, hidden) @ self.second[...]
        return result
