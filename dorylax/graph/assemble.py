"""From valid compressed rows to a `Graph`: detection of symmetry and self-loops.

A sum of hashes of all edges, which does not depend on their order, shows in one pass whether a graph is its own
transpose (AdHash: M. Bellare and D. Micciancio, "A new paradigm for collision-free hashing", EUROCRYPT 1997). Graphs
that were not made to collide do so with probability 2⁻⁶⁴.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64, UInt64

from dorylax.graph.compressed import AnyGraph, SelfLoops
from dorylax.graph.rows import count_values, rows_between, rows_with_loops, spans

_SPAN = 1 << 16  # a span's arrays stay in a core's cache
_MOST_THREADS = 16
_OF_SOURCE, _OF_TARGET = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_OF_AN_EDGE = np.uint64(0x165667B19E3779F9)  # or an edge 0 → 0 would count as none


def assemble(
    kind: type[AnyGraph],
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    *,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
    **edges: Any,
) -> AnyGraph:
    """Make a graph of in-edges whose sources ascend inside a row, in O(V + E). `edges` are options of `CompressedGraph`.

    Symmetry and self-loops are detected, in a pass over the edges each, unless a value is given, which is trusted.
    """
    if symmetric is None:
        symmetric = np.array_equal(
            np.diff(offsets), count_values(sources, len(offsets) - 1)
        )  # nearly never if directed
        if symmetric:
            forward, reverse = edge_fingerprint(offsets, sources)
            symmetric = forward == reverse
    if self_loops is None:
        looped = rows_with_loops(offsets, sources)
        self_loops = "none" if not looped.any() else "all" if looped.all() else "some"
    return kind(offsets, sources, symmetric=symmetric, self_loops=self_loops, **edges)


def numbered_by_source(graph: AnyGraph, vertex_ids: np.ndarray | None = None) -> AnyGraph:
    """The same rows with edge ids 0 … E-1 by (source, target), as they are once it was saved and read again."""
    return type(graph)(
        graph.incoming.offsets,
        graph.incoming.neighbours,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=vertex_ids,
        placed="source",
    )


def edge_fingerprint(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> tuple[int, int]:
    """Hashes of the edges and of the reversed edges, 64 bits each: equal if every edge comes with its reverse."""
    return _over_spans(lambda start, stop: (sources[start:stop], rows_between(offsets, start, stop)), len(sources))


def pair_fingerprint(sources: Int32[np.ndarray, " E"], targets: Int32[np.ndarray, " E"]) -> tuple[int, int]:
    """The same of edges that are in any order; those of parts of them add up, modulo 2⁶⁴."""
    return _over_spans(lambda start, stop: (sources[start:stop], targets[start:stop]), len(sources))


def _over_spans(ends: Callable[[int, int], tuple[np.ndarray, np.ndarray]], num_edges: int) -> tuple[int, int]:
    def of_span(span: tuple[int, int]) -> tuple[int, int]:
        source, target = (one.astype(np.uint64) for one in ends(*span))
        forward = _mixed(source * _OF_SOURCE + target * _OF_TARGET + _OF_AN_EDGE)
        reverse = _mixed(target * _OF_SOURCE + source * _OF_TARGET + _OF_AN_EDGE)
        return int(forward.sum(dtype=np.uint64)), int(reverse.sum(dtype=np.uint64))

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as threads:
        sums = list(threads.map(of_span, spans(num_edges, _SPAN)))
    mask = (1 << 64) - 1
    return sum(forward for forward, _ in sums) & mask, sum(reverse for _, reverse in sums) & mask


def _mixed(words: UInt64[np.ndarray, " N"]) -> UInt64[np.ndarray, " N"]:
    """SplitMix64's finaliser (G. Steele, D. Lea and C. Flood, OOPSLA 2014), in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
