"""The normalised adjacency matrix of Kipf & Welling as an operator on rows, shared by GCN, SGC, APPNP and GCNII."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import statistics_dtype
from dorylax.ops import gather, gather_edges, in_degrees, missing_self_loops
from dorylax.ops.shapes import mean_dtypes


class NormalisedAdjacency(NamedTuple):
    r"""Ã = D̂^(-1/2) Â D̂^(-1/2), with Â = A + I where A has no loop and D̂ = diag(Â 1).

    Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907, equation 2. For one vertex, over its in-neighbours and
    itself,

        (Ã X)_v = Σ_{u ∈ N(v) ∪ {v}} w_uv / √(d_u d_v) · x_u,    d_v = Σ_{u ∈ N(v) ∪ {v}} w_uv.

    A loop is added only to vertices without one. A loop given twice counts twice, as any edge does. (PyG keeps one:
    `coalesce` the graph first for equal results.) In a directed graph d is the in-degree at both ends, as in PyG. The
    normalisation is separable, so no array over the edges is made: rows are scaled before and after a plain gather.

    Attributes:
        graph: V vertices, E edges.
        scale: 1/√d `[V, 1]`.
        loops: Weights of the implicit loops `[V, 1]`, 0 for vertices with a loop in A.
        edge_weight: w `[E]`, or None for all ones.
    """

    graph: CompressedGraph
    scale: Float[Array, "V 1"]
    loops: Float[Array, "V 1"]
    edge_weight: Float[Array, " E"] | None

    def times(self, x: Float[Array, "V F"]) -> Float[Array, "V F"]:
        """Return Ã X, `[V, F]`."""
        wide, narrow = mean_dtypes(x.dtype)  # the sum of a hub's neighbours may overflow although its row does not
        scale = self.scale.astype(wide)
        h = scale * x.astype(wide)
        y: jax.Array = scale * (gather(self.graph, h, self.edge_weight) + self.loops.astype(wide) * h)
        return y.astype(narrow)


def normalised_adjacency(
    graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
) -> NormalisedAdjacency:
    """Return Ã of a graph, for products with rows of the dtype of `x`.

    Args:
        graph: V vertices, E edges.
        x: Rows in the dtype of the products; degrees are counted in float32 at least.
        edge_weight: `[E]`, by edge id, w ≥ 0 and in the dtype of `x` (default: all ones); an added loop has weight 1. A
            vertex whose weights sum to 0 has 1/√d = 0.
    """
    statistics = statistics_dtype(x)
    loops = missing_self_loops(graph, statistics)
    if edge_weight is None:
        degrees = in_degrees(graph, statistics) + loops
    else:
        degrees = gather_edges(graph, edge_weight.astype(statistics)) + loops
    scale = _inverse_root(degrees).astype(x.dtype)[:, None]
    return NormalisedAdjacency(graph, scale, loops.astype(x.dtype)[:, None], edge_weight)


def _inverse_root(degrees: Float[Array, " V"]) -> Float[Array, " V"]:
    """Return d^(-1/2), or 0 if d = 0, with a finite derivative there, too."""
    positive = degrees > 0
    return jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, degrees, 1)), 0)
