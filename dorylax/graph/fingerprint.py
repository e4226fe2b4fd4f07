"""A number that tells graphs apart, and tells whether a graph is its own transpose, in one pass and without sorting.

Each edge is hashed, its two ends in their roles, and the hashes are added up, so that the order of edges does not count:
a hash of multisets (M. Bellare and D. Micciancio, "A new paradigm for collision-free hashing: incrementality at reduced
cost", EUROCRYPT 1997, AdHash). Graphs that were not made to collide do so with probability 2⁻⁶⁴.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Int32, Int64, UInt64

from dorylax.graph.rows import rows_between, spans

_SPAN = 1 << 16  # a span's arrays stay in a core's cache
_MOST_THREADS = 16
_OF_SOURCE, _OF_TARGET = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_OF_AN_EDGE = np.uint64(0x165667B19E3779F9)  # or an edge 0 → 0 would count as none


def edge_fingerprint(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> tuple[int, int]:
    """Of the edges and of the reversed edges, 64 bits each: equal where every edge comes with its reverse.

    Args:
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source of each in-edge, int32 `[E]`; may be memory-mapped.
    """
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
