"""The undirected view of a graph that partitioners of undirected graphs take: each pair once, no loops."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.rows import all_rows, first_of_equals, offsets_without, positions_of_loops
from dorylax.graph.transpose import compress


def undirected(graph: CompressedGraph) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " N"]]:
    """Rows that list u in v and v in u, once each, wherever `graph` has an edge between u ≠ v in either direction.

    Returns:
        `(offsets, neighbours)`: int64 `[V+1]` and int32 `[N]`, ascending inside a row.
    """
    offsets, sources = graph.host_rows()
    if graph.symmetric:
        return _simple(offsets, sources)
    return joined(sources, all_rows(offsets), graph.num_vertices)


def joined(
    ends: Int32[np.ndarray, " E"], others: Int32[np.ndarray, " E"], num_vertices: int
) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " N"]]:
    """As `undirected`, of the pairs `(ends[k], others[k])`."""
    both = np.concatenate([ends, others]), np.concatenate([others, ends])
    offsets, neighbours, _ = compress(*both, num_vertices, with_positions=False)
    return _simple(offsets, neighbours)


def _simple(
    offsets: Int64[np.ndarray, " V1"], neighbours: Int32[np.ndarray, " E"]
) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " N"]]:
    """Sorted rows without duplicates and loops."""
    keep = first_of_equals(offsets, neighbours)
    keep[positions_of_loops(offsets, neighbours)] = False
    return offsets_without(offsets, np.flatnonzero(~keep)), neighbours[keep]
