"""METIS, through pymetis: multilevel graph partitioning.

G. Karypis and V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci.
Comput. 20(1), 1998. METIS sees an undirected graph without loops or multiple edges, and cuts few of its edges while the
weights of the parts stay within a few percent of each other.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition.metis_call import partition_apart, partition_here, rand_is_shared
from dorylax.graph.partition.simple import Balance, vertex_weights
from dorylax.graph.rows import all_rows, compress, first_of_equals, offsets_without, positions_where

MOST_BISECTED = 8
"""Largest number of parts for recursive bisection; METIS's manual advises k-way for more."""
Rows = tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " N"]]
"""Offsets and neighbours."""


def metis(graph: CompressedGraph, num_parts: int, balance: Balance, seed: int) -> Int32[np.ndarray, " V"]:
    """Few cut edges; the same arguments give the same parts.

    Directions and multiplicities of edges do not count. Parts are even to within a few percent if no single vertex is
    too heavy, and may be empty if vertices are few.
    """
    weights = None if balance == "vertices" else vertex_weights(graph, balance)
    return cut(*undirected(graph), num_parts, seed=seed, weights=weights, bisect=num_parts <= MOST_BISECTED)


def cut(
    offsets: Int64[np.ndarray, " V1"],
    neighbours: Int32[np.ndarray, " N"],
    num_parts: int,
    *,
    seed: int,
    bisect: bool,
    weights: Int64[np.ndarray, " V"] | None = None,
    edge_weights: Int32[np.ndarray, " N"] | None = None,
) -> Int32[np.ndarray, " V"]:
    """METIS on undirected rows `(offsets, neighbours)` without loops and duplicates.

    Args:
        offsets: Of the rows.
        neighbours: Of each row.
        num_parts: P ≥ 1.
        seed: Seed of METIS's random choices.
        bisect: Recursive bisection, whose part numbers are an order: near parts have near numbers. Otherwise k-way.
        weights: Weights of the vertices; None: all 1.
        edge_weights: Weights of the entries, the same in both directions; None: all 1.

    Raises:
        InputError: METIS cannot hold the graph.
    """
    if num_parts == 1:
        return np.zeros(len(offsets) - 1, np.int32)
    index = _index_type()
    most = int(np.iinfo(index).max)
    sizes = {"entries": len(neighbours), "vertices and edges": 0 if weights is None else int(weights.sum())}
    for what, number in sizes.items():
        if number > most:
            raise InputError(
                f"METIS was built with {8 * index.itemsize}-bit indices and holds up to {most} {what} (each undirected "
                f"edge counts twice), the graph has {number}: use the method 'ldg'"
            )
    arrays = [
        None if one is None else one.astype(index, copy=False) for one in (offsets, neighbours, weights, edge_weights)
    ]
    # SIGTERM during k-way leaves inner bisections unfinished, and METIS reads beyond its arrays.
    partition: Callable[..., np.ndarray] = _with_signals if bisect and not rand_is_shared() else partition_apart
    try:
        return partition(arrays, num_parts, recursive=bisect, seed=seed).astype(np.int32, copy=False)
    except (MemoryError, RuntimeError) as error:
        raise InputError(
            f"METIS cannot partition a graph of {len(neighbours)} entries here ({error}): use the method 'ldg'"
        ) from error
    finally:
        give_back_heap()


def undirected(graph: CompressedGraph) -> Rows:
    """Offsets and neighbours of rows, ascending, that list u in v and v in u once for each joined pair u ≠ v."""
    offsets, sources = graph.host_rows()
    if graph.symmetric:
        return _simple(offsets, sources)
    return joined(sources, all_rows(offsets), graph.num_vertices)


def joined(ends: Int32[np.ndarray, " E"], others: Int32[np.ndarray, " E"], num_vertices: int) -> Rows:
    """As `undirected`, of the pairs `(ends[k], others[k])`."""
    both = np.concatenate([ends, others]), np.concatenate([others, ends])
    offsets, neighbours, _ = compress(*both, num_vertices, with_positions=False)
    return _simple(offsets, neighbours)


def _simple(offsets: Int64[np.ndarray, " V1"], neighbours: Int32[np.ndarray, " E"]) -> Rows:
    """Sorted rows without duplicates and loops."""
    keep = first_of_equals(offsets, neighbours)
    keep[positions_where(np.equal, offsets, neighbours)] = False
    return offsets_without(offsets, np.flatnonzero(~keep)), neighbours[keep]


def _with_signals(*arguments: Any, **options: Any) -> np.ndarray:
    """`partition_here`, after which SIGTERM acts.

    METIS catches SIGTERM and jumps out of its handler, which leaves the signal blocked. It then fails as if without memory
    or returns an unfinished partition. If the process handles the signal and continues, METIS starts again.
    """
    while True:
        found = failure = None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            found = partition_here(*arguments, **options)
        except RuntimeError as error:
            failure = error
        terminated = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()) - before
        if terminated and signal.SIGTERM not in signal.sigpending():
            signal.raise_signal(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if failure is not None and not terminated:
            raise failure
        if found is not None and not terminated:
            return found


def _index_type() -> np.dtype[np.integer]:
    """METIS's own integer: 32 or 64 bits wide, as pymetis was built."""
    import pymetis

    return pymetis.zero_copy_dtype()


def give_back_heap() -> None:
    """Give the memory that was freed, of METIS up to 400 MB for a few million entries, back to the system (glibc only)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
