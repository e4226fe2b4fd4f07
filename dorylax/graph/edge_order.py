"""Slots and places: where an edge lies in a graph's rows, and where its values lie in per-edge arrays.

A *slot* is a position in the incoming rows: primitives, kernels and programs count edges by slots. A *place* is a position
in the arrays `[E, …]` that users give and get; places follow the edges' ids. Which slot holds the edge of which place is one
permutation, and this module says what it is. Memory order (`Graph.reorder`) changes slots and never places, so the
permutation is described by the vertices' own ids and worked out for a memory order when it is first asked for.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, Integer

from dorylax.aligned import empty
from dorylax.graph.rows import all_rows, spans
from dorylax.graph.transpose import compress


class BySlot(NamedTuple):
    """Places said slot by slot, as JAX carries them.

    Attributes:
        places: the place of the edge in each slot, int32 `[E]`; None where slot k is place k.
    """

    places: Any = None


EdgeOrder = Literal["target", "source"] | np.ndarray | BySlot
"""The places of a graph's edges: ranks by (target, source) or by (source, target) of the vertices' own ids, equal edges as
they lie in the rows; or, int32 `[E]`, the place of each edge where edges are ranked by (target, source); or `BySlot`."""


def places_of_slots(
    order: Literal["target", "source"] | np.ndarray,
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    vertex_ids: Int32[np.ndarray, " V"],
) -> Integer[np.ndarray, " E"]:
    """The place of the edge in each slot, `[E]`, once vertices were reordered. Two counting sorts, O(V + E).

    Args:
        order: the places, see `EdgeOrder`.
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source of each in-edge, ascending inside a row, int32 `[E]`.
        vertex_ids: the id of the vertex in each row, int32 `[V]`.
    """
    sources, targets = vertex_ids[sources], vertex_ids[all_rows(offsets)]
    major, minor = (sources, targets) if isinstance(order, str) and order == "source" else (targets, sources)
    _, _, slots = compress(minor, major, len(offsets) - 1)
    ranks = inverse_permutation(slots)
    return ranks if isinstance(order, str) else order[ranks]


def sorted_by(major: Integer[np.ndarray, " E"], minor: Integer[np.ndarray, " E"]) -> bool:
    """Whether pairs ascend by (major, minor), equal ones allowed."""
    for start, stop in spans(len(major)):
        a, b = major[max(start, 1) - 1 : stop], minor[max(start, 1) - 1 : stop]
        if not ((a[1:] > a[:-1]) | ((a[1:] == a[:-1]) & (b[1:] >= b[:-1]))).all():
            return False
    return True


def inverse_permutation(order: Integer[np.ndarray, " N"]) -> Integer[np.ndarray, " N"]:
    """The permutation p with `p[order[i]] = i`, of the same type."""
    inverse = empty((len(order),), order.dtype)
    inverse[order] = np.arange(len(order), dtype=order.dtype)
    return inverse
