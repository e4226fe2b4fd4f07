"""Another memory order for the same graph: rows are permuted, vertices and edges keep the user's ids.

Which order is good is decided elsewhere; this applies one. `vertex_ids` and `edge_ids` of the result always refer to
the graph as the user built it, however often it was reordered.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from jaxtyping import Int32, Int64, Integer

from dorylax.graph import transpose
from dorylax.graph.assemble import assemble
from dorylax.graph.graph import Graph, as_int64
from dorylax.graph.rows import all_rows
from dorylax.graph.transpose import compress
from dorylax.graph.validate import GraphError, as_integers, check_permutation


def reorder(graph: Graph, order: npt.ArrayLike) -> Graph:
    """The graph with its rows permuted, in O(V + E).

    Args:
        graph: the graph.
        order: integers `[V]`, a permutation: row `order[i]` of `graph` becomes row i.

    Returns:
        A graph with `vertex_ids[i]` the user's id of the vertex in row i and `edge_ids[e]` the edge id in the user's
        graph of edge e; both None where the order is the user's own again.

    Raises:
        GraphError: `order` is not a permutation of 0 … V-1, or edges are too many to have ids.
    """
    _check_edge_ids_fit(graph.num_edges)
    order = as_integers("order", order)
    check_permutation("order", order, graph.num_vertices)
    place = inverse_permutation(order.astype(np.int32, copy=False))
    sources = np.asarray(graph.incoming.neighbours)
    targets = all_rows(as_int64(graph.incoming.offsets))
    offsets, sources, positions = compress(place[sources], place[targets], graph.num_vertices)
    vertex_ids = (order if graph.vertex_ids is None else np.asarray(graph.vertex_ids)[order]).astype(np.int32)
    edge_ids = positions if graph.edge_ids is None else np.asarray(graph.edge_ids)[positions]
    if np.array_equal(vertex_ids, np.arange(graph.num_vertices)):
        vertex_ids, edge_ids = None, None
    return assemble(
        offsets,
        sources,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=vertex_ids,
        edge_ids=edge_ids,
    )


def user_order(graph: Graph) -> Int32[np.ndarray, " V"] | None:
    """The `order` that undoes all reorders of `graph`; None where there is nothing to undo."""
    return None if graph.vertex_ids is None else inverse_permutation(np.asarray(graph.vertex_ids))


def user_edge_ids(
    offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"], vertex_ids: Int32[np.ndarray, " V"] | None
) -> Integer[np.ndarray, " E"] | None:
    """The edge ids of rows whose vertices have other ids: ranks of the edges by (user's target, user's source)."""
    if vertex_ids is None:
        return None
    _check_edge_ids_fit(len(sources))
    _, _, positions = compress(vertex_ids[sources], vertex_ids[all_rows(offsets)], len(vertex_ids))
    return inverse_permutation(positions)


def _check_edge_ids_fit(num_edges: int) -> None:
    if not transpose.edge_ids_fit(num_edges):
        raise GraphError(
            f"a reordered graph keeps the id of each edge, an int32, so it may have up to {transpose.MAX_EDGE_IDS} "
            f"edges, got {num_edges}: give the edges in the order wanted instead"
        )


def inverse_permutation(order: Integer[np.ndarray, " N"]) -> Integer[np.ndarray, " N"]:
    """The permutation p with `p[order[i]] = i`, of the same type."""
    inverse = np.empty_like(order, subok=False)
    inverse[order] = np.arange(len(order), dtype=order.dtype)
    return inverse
