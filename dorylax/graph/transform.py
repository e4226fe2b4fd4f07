"""Graphs with other edges on the same vertices: self-loops added or dropped, directions made symmetric.

Each function returns a new graph, or the same one where there is nothing to change; edge ids are those of the new
graph. Layers do not need explicit self-loops: operators treat a missing loop as a term of their formula.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.assemble import assemble
from dorylax.graph.graph import Graph, SelfLoops, as_int64
from dorylax.graph.rows import (
    all_rows,
    count_rows_where,
    first_of_equals,
    offsets_without,
    positions_of_loops,
    rows_between,
    rows_with_loops,
    spans,
)
from dorylax.graph.transpose import compress


def with_self_loops(graph: Graph) -> Graph:
    """The graph with an edge v → v for each vertex v that has none; existing loops stay as they are."""
    if graph.self_loops == "all" or graph.num_vertices == 0:
        return graph
    offsets, sources = _rows(graph)
    lacking = np.flatnonzero(~rows_with_loops(offsets, sources))
    below = count_rows_where(_positions_below_diagonal(offsets, sources), offsets)
    places = offsets[lacking] + below[lacking]  # after the sources smaller than v, so that rows stay sorted
    added = np.zeros(len(offsets), np.int64)
    added[lacking + 1] = 1
    return _changed(graph, offsets + np.cumsum(added), np.insert(sources, places, lacking.astype(np.int32)), "all")


def without_self_loops(graph: Graph) -> Graph:
    """The graph without the edges v → v."""
    if graph.self_loops == "none":
        return graph
    offsets, sources = _rows(graph)
    loops = positions_of_loops(offsets, sources)
    return _changed(graph, offsets_without(offsets, loops), np.delete(sources, loops), "none")


def symmetrise(graph: Graph) -> Graph:
    """The undirected graph: u → v and v → u, once each, wherever `graph` has either; duplicates are dropped."""
    offsets, sources = _rows(graph)
    targets = all_rows(offsets)
    if not graph.symmetric:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    offsets, sources, _ = compress(sources, targets, graph.num_vertices, with_positions=False)
    keep = first_of_equals(offsets, sources)
    offsets, sources = offsets_without(offsets, np.flatnonzero(~keep)), sources[keep]
    return _changed(graph, offsets, sources, graph.self_loops, symmetric=True)


def _rows(graph: Graph) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " E"]]:
    return as_int64(graph.incoming.offsets), np.asarray(graph.incoming.neighbours)


def _positions_below_diagonal(
    offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]
) -> Int64[np.ndarray, " N"]:
    """Positions, ascending, of the entries whose source is smaller than their row."""
    found = [
        np.flatnonzero(sources[start:stop] < rows_between(offsets, start, stop)) + start
        for start, stop in spans(len(sources))
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _changed(
    graph: Graph,
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    self_loops: SelfLoops,
    *,
    symmetric: bool | None = None,
) -> Graph:
    """A graph of other edges, on the vertices of `graph` in its memory order."""
    vertex_ids = None if graph.vertex_ids is None else np.asarray(graph.vertex_ids)
    return assemble(
        offsets,
        sources,
        symmetric=graph.symmetric if symmetric is None else symmetric,
        self_loops=self_loops,
        vertex_ids=vertex_ids,
    )
