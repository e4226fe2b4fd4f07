"""Streaming partitioning by linear deterministic greedy (LDG), for graphs that METIS cannot hold.

I. Stanton and G. Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012: vertices come one by one;
each goes to the part p that maximises |N(v) ∩ p|·(1 − |p|/C), the neighbours that are there already, times how much of
the part's capacity C is free; ties go to the emptiest part.

The stream is a random order. It is read in chunks: of the neighbours outside the chunk, NumPy counts how many each part
has; only those inside it are counted one by one, so that Python's share of the work is per vertex, not per edge. The
result is that of the plain algorithm.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import Adjacency, CompressedGraph, as_int64
from dorylax.graph.partition.balance import Balance, vertex_weights
from dorylax.graph.rows import all_rows

# About V/256 of the entries of a chunk stay inside it: little for Python, and NumPy's cost per call is paid 256 times.
_CHUNKS = 256
_CHUNK = 64, 1 << 16


def ldg(graph: CompressedGraph, num_parts: int, balance: Balance, seed: int) -> Int32[np.ndarray, " V"]:
    """Fewer cut edges than at random, in one pass over the edges.

    Args:
        graph: the graph; in- and out-neighbours count alike, multiple edges by their number.
        num_parts: P ≥ 1.
        balance: what the parts have capacity for; the capacity is the mean, which a heavy vertex may exceed.
        seed: of the order in which vertices come.

    Returns:
        The part of each vertex, int32 `[V]`; a part may be empty where vertices are few.
    """
    num_vertices = graph.num_vertices
    weights = vertex_weights(graph, balance)
    capacity = float(weights.sum()) / num_parts
    order = np.random.default_rng(seed).permutation(num_vertices)
    directions = [graph.incoming] if graph.symmetric else [graph.incoming, graph.outgoing]
    parts = np.full(num_vertices, -1, np.int32)
    place = np.full(num_vertices, -1, np.int32)  # in the chunk
    loads = [0.0] * num_parts
    free = [1.0] * num_parts
    size = min(max(num_vertices // _CHUNKS, _CHUNK[0]), _CHUNK[1])
    for start in range(0, num_vertices, size):
        chunk = order[start : start + size]
        place[chunk] = np.arange(len(chunk), dtype=np.int32)
        rows, neighbours = _entries(directions, chunk)
        there = parts[neighbours]
        known = there >= 0
        cells = rows[known].astype(np.int64) * num_parts + there[known]
        counts = np.bincount(cells, minlength=len(chunk) * num_parts).reshape(-1, num_parts).tolist()
        inside = place[neighbours]
        earlier = (inside >= 0) & (inside < rows)
        near = inside[earlier].tolist()
        bounds = np.searchsorted(rows[earlier], np.arange(len(chunk) + 1)).tolist()
        chosen: list[int] = []
        for row, (count, weight) in enumerate(zip(counts, weights[chunk].tolist(), strict=True)):
            for other in near[bounds[row] : bounds[row + 1]]:
                count[chosen[other]] += 1
            scores = [there * share for there, share in zip(count, free, strict=True)]
            best = max(scores)
            part = scores.index(best) if best > 0 else free.index(max(free))
            chosen.append(part)
            loads[part] += weight
            free[part] = 1 - loads[part] / capacity
        parts[chunk] = chosen
        place[chunk] = -1
    return parts


def _entries(
    directions: list[Adjacency], chunk: Int64[np.ndarray, " C"]
) -> tuple[Int32[np.ndarray, " N"], Int32[np.ndarray, " N"]]:
    """The neighbours of some vertices, in all directions: `(place in the chunk, neighbour)`, by place."""
    found = []
    for adjacency in directions:
        offsets = as_int64(adjacency.offsets)
        starts = offsets[chunk]
        counts = offsets[chunk + 1] - starts
        bounds = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])
        found.append((all_rows(bounds), np.asarray(adjacency.neighbours)[places]))
    if len(found) == 1:
        return found[0]
    rows, neighbours = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    by_row = np.argsort(rows, kind="stable")
    return rows[by_row], neighbours[by_row]
