"""Partitions by method. The partitioners are in `metis`, `ldg` and `simple`."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Int32

from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition.base import Partition, graph_digest
from dorylax.graph.partition.ldg import ldg
from dorylax.graph.partition.metis import metis
from dorylax.graph.partition.simple import Balance, random, ranges

Method = Literal["metis", "ldg", "range", "random"]
_MAKERS: dict[str, Callable[[CompressedGraph, int, Balance, int], Int32[np.ndarray, " V"]]] = {
    "metis": metis,
    "ldg": ldg,
    "range": ranges,
    "random": random,
}


def partition(
    graph: CompressedGraph, num_parts: int, *, method: Method = "metis", balance: Balance = "vertices", seed: int = 0
) -> Partition:
    """Spreads the vertices of a graph over servers; every server gets at least one.

    Args:
        graph: the graph.
        num_parts: P, the number of servers, 1 … V.
        method: "metis" (few cut edges), "ldg" (streaming: more cut edges, for graphs that METIS cannot hold), "range"
            (consecutive rows) or "random".
        balance: whether servers have about the same number of vertices, or of vertices and in-edges together.
        seed: of the method's random choices, 0 … 2³¹-1; "range" makes none.

    Returns:
        The partition; the same arguments give the same one.

    Raises:
        InputError: an unknown method or balance, a number out of range, or METIS cannot hold the graph.
    """
    for name, value, known in (("method", method, Method), ("balance", balance, Balance)):
        if value not in (choices := typing.get_args(known)):
            raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    if not 1 <= num_parts <= graph.num_vertices:
        raise InputError(
            f"the number of servers must be in 1 … {graph.num_vertices} (the graph's vertices), got {num_parts}"
        )
    if not 0 <= seed < 2**31:
        raise InputError(f"seed must be in 0 … {2**31 - 1}, got {seed}")
    parts = _without_empty(_MAKERS[method](graph, num_parts, balance, seed), num_parts)
    return Partition(parts, num_parts, method, balance, seed, graph_digest(graph))


def _without_empty(parts: Int32[np.ndarray, " V"], num_parts: int) -> Int32[np.ndarray, " V"]:
    """Gives each empty part the last vertex of the largest: heuristics leave parts empty where vertices are few."""
    sizes = np.bincount(parts, minlength=num_parts)
    if not sizes.all():
        parts = parts.copy()
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        parts[np.flatnonzero(parts == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return parts
