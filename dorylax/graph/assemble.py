"""From valid compressed rows to a `Graph`: finding out what the rows do not say (symmetry, self-loops)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import AnyGraph, SelfLoops
from dorylax.graph.fingerprint import edge_fingerprint
from dorylax.graph.rows import count_values, rows_with_loops


def assemble(
    kind: type[AnyGraph],
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    *,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
    **edges: Any,
) -> AnyGraph:
    """Makes the graph, O(V + E).

    Args:
        kind: the class of the graph.
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source of each in-edge, ascending inside a row, int32 `[E]`.
        symmetric: None finds out; a value is trusted and saves a pass over the edges.
        self_loops: None finds out; a value is trusted and saves a pass over the edges.
        **edges: what else the graph is to know of its edges.
    """
    return kind(
        offsets,
        sources,
        symmetric=_is_symmetric(offsets, sources) if symmetric is None else symmetric,
        self_loops=_find_self_loops(offsets, sources) if self_loops is None else self_loops,
        **edges,
    )


def numbered_by_source(graph: AnyGraph) -> AnyGraph:
    """The same rows with edge ids 0 … E-1 by (source, target), as they are once it was saved and read again."""
    return type(graph)(
        graph.incoming.offsets,
        graph.incoming.neighbours,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        placed="source",
    )


def _is_symmetric(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> bool:
    if not np.array_equal(np.diff(offsets), count_values(sources, len(offsets) - 1)):
        return False  # in-degrees and out-degrees differ, as in nearly every directed graph
    forward, reverse = edge_fingerprint(offsets, sources)
    return forward == reverse


def _find_self_loops(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> SelfLoops:
    looped = rows_with_loops(offsets, sources)
    if not looped.any():
        return "none"
    return "all" if looped.all() else "some"
