"""Weights of vertices, and partitions that do not look at edges: consecutive ranges of rows, and random parts."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import CompressedGraph, in_degrees

Balance = Literal["vertices", "edges"]


def vertex_weights(graph: CompressedGraph, balance: Balance) -> Int64[np.ndarray, " V"]:
    """Weights for balancing: 1 for each vertex, or its in-degree + 1 (its own row is work too)."""
    if balance == "vertices":
        return np.broadcast_to(np.int64(1), graph.num_vertices)  # without memory
    return in_degrees(graph) + 1


def ranges(graph: CompressedGraph, num_parts: int, balance: Balance, _seed: int = 0) -> Int32[np.ndarray, " V"]:
    """Consecutive rows, of equal number (to within one) or of about equal in-edges; none empty if P ≤ V."""
    return _ranges(vertex_weights(graph, balance), num_parts)


def random(graph: CompressedGraph, num_parts: int, balance: Balance, seed: int) -> Int32[np.ndarray, " V"]:
    """As `ranges`, of rows in random order."""
    order = np.random.default_rng(seed).permutation(graph.num_vertices)
    parts = np.empty(graph.num_vertices, np.int32)
    parts[order] = _ranges(vertex_weights(graph, balance)[order], num_parts)
    return parts


def even_bounds(size: int, num_parts: int) -> Int64[np.ndarray, " P1"]:
    """Bounds of consecutive ranges whose sizes differ by at most one, int64 `[P+1]`."""
    return np.arange(num_parts + 1, dtype=np.int64) * size // max(1, num_parts)


def _ranges(weights: Int64[np.ndarray, " V"], num_parts: int) -> Int32[np.ndarray, " V"]:
    """Cuts where the running sum of weights comes nearest to even shares."""
    size = len(weights)
    ends = np.cumsum(weights)
    shares = np.arange(1, num_parts) * (float(ends[-1]) / num_parts)
    cuts = np.searchsorted(ends - weights / 2, shares)
    numbers = np.arange(1, num_parts)
    # No part without a vertex, in front of a heavy vertex or behind it.
    cuts = np.maximum.accumulate(np.maximum(cuts, 1) - numbers) + numbers
    cuts = np.minimum(cuts, size - num_parts + numbers)
    return np.repeat(np.arange(num_parts, dtype=np.int32), np.diff(cuts, prepend=0, append=size))
