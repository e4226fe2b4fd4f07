"""degrees."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Num

from dorylax.graph.graph import Graph, as_words
from dorylax.ops import segment


def in_degrees(graph: Graph, dtype=jnp.float32) -> Num[Array, " V"]:
    return segment.degrees(as_words(graph.incoming.offsets)).astype(dtype)


def missing_self_loops(graph: Graph, dtype=jnp.float32) -> Num[Array, " V"]:
    if graph.self_loops == "none":
        return jnp.ones(graph.num_vertices, dtype)
    if graph.self_loops == "all":
        return jnp.zeros(graph.num_vertices, dtype)
    offsets = as_words(graph.incoming.offsets)
    loops = (segment.rows(offsets, graph.num_edges) == graph.incoming.neighbours).astype(jnp.int32)
    return (segment.reduce_entries(loops, offsets, "sum") == 0).astype(dtype)
