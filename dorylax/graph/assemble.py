"""From valid compressed rows to a `Graph`: finding out what the rows do not say (symmetry, self-loops)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.graph import Adjacency, Graph, SelfLoops
from dorylax.graph.rows import count_values, rows_with_loops
from dorylax.graph.transpose import transpose


def assemble(
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    *,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
    vertex_ids: Int32[np.ndarray, " V"] | None = None,
) -> Graph:
    """Makes the graph, O(V + E).

    Args:
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source of each in-edge, ascending inside a row, int32 `[E]`.
        symmetric: None finds out; a value is trusted and saves a counting sort (12 bytes an edge while it runs).
        self_loops: None finds out; a value is trusted and saves a pass over the edges.
        vertex_ids: see `Graph`.
    """
    outgoing = None
    if symmetric is None:
        symmetric, outgoing = _find_symmetry(offsets, sources)
    return Graph(
        offsets,
        sources,
        outgoing=outgoing,
        symmetric=symmetric,
        self_loops=_find_self_loops(offsets, sources) if self_loops is None else self_loops,
        vertex_ids=vertex_ids,
    )


def _find_symmetry(
    offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]
) -> tuple[bool, Adjacency | None]:
    """Whether the transposed rows are the same rows; with the transposed rows where they had to be made to tell."""
    num_vertices = len(offsets) - 1
    if not np.array_equal(np.diff(offsets), count_values(sources, num_vertices)):
        return False, None  # in-degrees and out-degrees differ, as in nearly every directed graph: no sort needed
    out_offsets, targets, edges = transpose(offsets, sources, num_vertices)
    if np.array_equal(targets, sources):
        return True, Adjacency(offsets, sources, edges)
    return False, Adjacency(out_offsets, targets, edges)


def _find_self_loops(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> SelfLoops:
    looped = rows_with_loops(offsets, sources)
    if not looped.any():
        return "none"
    return "all" if looped.all() else "some"
