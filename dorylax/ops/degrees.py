"""Degrees and self-loops of a graph, inside JAX: constants of the graph, exact for any number of edges."""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.primitives import counts
from dorylax.ops.primitives.structure import structure_of


def in_degrees(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return the number of in-edges of each vertex, `[V]`; an edge counts once, regardless of its weight."""
    return counts.degrees(structure_of(graph, edge_ids=False), direction="in").astype(dtype)


def out_degrees(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return the number of out-edges of each vertex, `[V]`."""
    return counts.degrees(structure_of(graph, edge_ids=False), direction="out").astype(dtype)


def missing_self_loops(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return 0 for vertices with an edge to themselves and 1 for all others, `[V]`.

    This is the weight of the *implicit* self-loop with which layers turn A into A + I. Existing loops keep their number, and
    no loop is stored.
    """
    if graph.self_loops == "none":
        return jnp.ones(graph.num_vertices, dtype)
    if graph.self_loops == "all":
        return jnp.zeros(graph.num_vertices, dtype)
    return (counts.self_loops(structure_of(graph, edge_ids=False)) == 0).astype(dtype)
