"""scatter."""

from __future__ import annotations

from jaxtyping import Array, Float

from dorylax.graph.graph import Graph, as_words
from dorylax.ops import segment


def scatter_src(graph: Graph, x: Float[Array, "V *rest"]) -> Float[Array, "E *rest"]:
    return x[graph.incoming.neighbours]


def scatter_dst(graph: Graph, x: Float[Array, "V *rest"]) -> Float[Array, "E *rest"]:
    return x[segment.rows(as_words(graph.incoming.offsets), graph.num_edges)]
