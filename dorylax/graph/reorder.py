"""Another memory order for the same graph: rows are permuted, vertices and edges keep the user's ids.

`vertex_ids` of the result refers to the graph as the user built it, however often it was reordered. Values per edge
stay as they are: only which slot holds which edge (`edge_order`) changes, and is computed on first use.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from jaxtyping import Int32, Int64, Integer

from dorylax.aligned import empty
from dorylax.graph.compressed import AnyGraph, CompressedGraph
from dorylax.graph.rows import SPAN, BySlot, EdgeOrder, Ids, Offsets, inverse_permutation, places_of_slots
from dorylax.graph.validate import as_integers, check_permutation

MOST_THREADS = 8
"""Each holds the keys of about a span of entries."""


def reorder(graph: AnyGraph, order: npt.ArrayLike) -> AnyGraph:
    """The graph with its rows permuted, in O(V + E log of the largest degree); vertices and edges keep their ids.

    Memory beyond the result is a few numbers for each vertex, and rows of about a million entries for each core.

    Args:
        graph: the graph.
        order: integers `[V]`, a permutation: row `order[i]` of `graph` becomes row i.

    Returns:
        A graph with `vertex_ids[i]` the user's id of the vertex in row i; None where the order is the user's own again.

    Raises:
        GraphError: `order` is not a permutation of 0 … V-1.
    """
    order = as_integers("order", order)
    check_permutation("order", order, graph.num_vertices)
    order = order.astype(np.int32, copy=False)
    placed = _placed(graph)
    offsets, sources = permuted(*graph.host_rows(), order, inverse_permutation(order))
    vertex_ids = order if graph.vertex_ids is None else np.asarray(graph.vertex_ids)[order].astype(np.int32)
    return type(graph)(
        offsets,
        sources,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=None if np.array_equal(vertex_ids, np.arange(graph.num_vertices)) else vertex_ids,
        placed=placed,
        edge_ids=graph.edge_ids if graph.edge_ids_fit else None,
        num_edge_ids=graph.num_edge_ids,
        edge_data=dict(graph.edge_data) if graph.knows_edge_data else None,
        without_edge_ids=not graph.edge_ids_fit,
    )


def _placed(graph: CompressedGraph) -> EdgeOrder:
    """The places of the edges, said by the vertices' own ids."""
    if not isinstance(graph.placed, BySlot):
        return graph.placed
    places = graph.placed.places
    if graph.vertex_ids is None:
        return "target" if places is None else np.asarray(places)
    ranks = places_of_slots("target", *graph.host_rows(), np.asarray(graph.vertex_ids))
    ranked = empty((graph.num_edges,), np.int32)
    ranked[ranks] = np.arange(graph.num_edges) if places is None else places
    return ranked


def permuted(
    offsets: Offsets,
    sources: Ids,
    rows: Integer[np.ndarray, " N"],
    place: Int32[np.ndarray, " V"],
    *,
    with_positions: bool = False,
) -> tuple[Int64[np.ndarray, " N1"], Int32[np.ndarray, " n"]]:
    """Offsets and sources of some rows, in the order given, of a graph whose vertices get the new numbers `place`.

    Sources ascend inside a row, before and after. With positions, the result holds positions in `sources` instead,
    equal sources in their order.
    """
    new_offsets = empty((len(rows) + 1,), np.int64)
    new_offsets[0] = 0
    np.cumsum(offsets[rows + 1] - offsets[rows], out=new_offsets[1:])
    num_entries = int(new_offsets[-1])
    found = empty((num_entries,), np.int32)
    # Whole rows, about a span of entries together; a hub may be longer than that.
    cuts = np.searchsorted(new_offsets, np.arange(0, num_entries, SPAN), side="left")
    bounds = np.unique([0, *cuts, len(rows)]).tolist()

    def fill(chunk: int) -> None:
        first, last = bounds[chunk], bounds[chunk + 1]
        start, stop = int(new_offsets[first]), int(new_offsets[last])
        degrees = np.diff(new_offsets[first : last + 1])
        moved = offsets[rows[first:last]] - new_offsets[first:last]  # of each row, from new positions to old ones
        entries = np.arange(start, stop) + np.repeat(moved, degrees)
        # Sorted by row, then source; keys of half the size, where they suffice, are sorted in half the time.
        small = (last - first) * len(place) < 1 << 32
        row_keys = np.arange(last - first, dtype=np.uint32 if small else np.int64) * len(place)
        before = np.repeat(row_keys, degrees)
        keys = before + place[sources[entries]].astype(before.dtype)
        if with_positions:
            found[start:stop] = entries[np.argsort(keys, kind="stable")]
            return
        keys.sort()
        np.subtract(keys, before, out=found[start:stop], casting="unsafe")

    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as threads:
        list(threads.map(fill, range(len(bounds) - 1)))  # raises errors of the threads
    return new_offsets, found


def user_order(graph: CompressedGraph) -> Int32[np.ndarray, " V"] | None:
    """The `order` that undoes all reorders of `graph`; None where there is nothing to undo."""
    return None if graph.vertex_ids is None else inverse_permutation(np.asarray(graph.vertex_ids))
