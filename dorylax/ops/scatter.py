"""`scatter_src` and `scatter_dst`: every edge reads the row of the vertex at one of its ends."""

from __future__ import annotations

import math

from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.edge_order import from_slots
from dorylax.ops.primitives.linear import expand
from dorylax.ops.primitives.structure import Direction, structure_of
from dorylax.ops.shapes import AnyArray, check_rows


def scatter_src(graph: CompressedGraph, x: Float[AnyArray, "V *rest"]) -> Float[Array, "E *rest"]:
    """`y[e] = x[u]` for each edge e = (u → v).

    Args:
        graph: The graph.
        x: Values per vertex, `[V, …]`.

    Returns:
        `[E, …]`, in order of edge ids.

    Raises:
        GraphError: Edges have no ids.
        ValueError: `x` does not have one row per vertex.
    """
    return from_slots(graph, scatter_to_slots(graph, x, "out"))


def scatter_dst(graph: CompressedGraph, x: Float[AnyArray, "V *rest"]) -> Float[Array, "E *rest"]:
    """`y[e] = x[v]` for each edge e = (u → v); arguments and result as in `scatter_src`."""
    return from_slots(graph, scatter_to_slots(graph, x, "in"))


def scatter_to_slots(
    graph: CompressedGraph, x: Float[AnyArray, "V *rest"], direction: Direction
) -> Float[Array, "E *rest"]:
    """Return the row that each edge reads at its source ("out") or destination ("in"), in slot order."""
    check_rows("x", x, "vertices", graph.num_vertices)
    flat = x.reshape(x.shape[0], 1, math.prod(x.shape[1:]))
    y = expand(flat, structure_of(graph), direction=direction)
    return y.reshape(y.shape[0], *x.shape[1:])
