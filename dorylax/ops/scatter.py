"""Values per edge: `scatter_src` and `scatter_dst`, by which every edge reads a row of one of its ends, and their order.

Operators take and return per-edge arrays in the user's order, primitives in slot order. The conversion uses plain indexing,
so that derivatives, `vmap` and `scan` work as for any array. Each direction is the transpose of the other: a gather if its
index is available, otherwise a scatter without collisions, which on CPUs takes a third longer.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from dorylax.graph.compressed import CompressedGraph
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


def to_slots(graph: CompressedGraph, values: Shaped[AnyArray, "E *rest"]) -> Shaped[AnyArray, "E *rest"]:
    """Convert values `[E, …]` from edge id order to slot order; unchanged if the orders are the same.

    Raises:
        GraphError: Edges have no ids.
    """
    graph.require_edge_ids()
    if graph.by_source and not graph.symmetric:
        return _scattered(values, graph.outgoing.edges)
    return values if graph.edge_order is None else _gathered(values, graph.edge_order)


def from_slots(graph: CompressedGraph, values: Shaped[AnyArray, "E *rest"]) -> Shaped[Array, "E *rest"]:
    """Convert values `[E, …]` from slot order to edge id order; the inverse of `to_slots`."""
    graph.require_edge_ids()
    if graph.by_source:
        return _gathered(values, graph.outgoing.edges)
    return jnp.asarray(values) if graph.edge_order is None else _scattered(values, graph.edge_order)


def _gathered(values: Any, index: Any) -> Array:
    return jnp.asarray(values).at[index].get(unique_indices=True, mode="promise_in_bounds")


def _scattered(values: Any, index: Any) -> Array:
    values = jnp.asarray(values)
    return jnp.zeros_like(values).at[index].set(values, unique_indices=True, mode="promise_in_bounds")
