"""Streaming partitioning by linear deterministic greedy (LDG), for graphs that METIS cannot hold.

I. Stanton and G. Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012: vertices come one by
one; each goes to the part p that maximises |N(v) ∩ p|·(1 − |p|/C), the neighbours that are there already, times the
free share of the part's capacity C; ties go to the emptiest part.

The stream is blocks of consecutive rows in random order, so that a graph on disk is read once, in pieces of some
length. NumPy counts the neighbours outside a block; only those inside it are counted one by one, so that Python's share
of the work is per vertex, not per edge. The result is that of the plain algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int32

from dorylax.graph.compressed import Adjacency, CompressedGraph, as_int64
from dorylax.graph.partition.simple import Balance, vertex_weights
from dorylax.graph.rows import all_rows

# Small graphs come in many blocks, so that they come in random order; of large ones a block has some megabytes of entries,
# few of which stay inside it unless rows are in an order of communities.
_BLOCKS, _BLOCK = 256, 4096


def ldg(graph: CompressedGraph, num_parts: int, balance: Balance, seed: int) -> Int32[np.ndarray, " V"]:
    """Fewer cut edges than at random, in one pass over the edges.

    In- and out-neighbours count alike, multiple edges by their number. The capacity of a part is the mean, which a heavy
    vertex may exceed; a part may be empty where vertices are few. The seed decides the order of blocks.
    """
    num_vertices = graph.num_vertices
    weights = vertex_weights(graph, balance)
    capacity = float(weights.sum()) / num_parts
    directions = [graph.incoming] if graph.symmetric else [graph.incoming, graph.outgoing]
    parts = np.full(num_vertices, -1, np.int32)
    loads = [0.0] * num_parts
    free = [1.0] * num_parts
    for first, last in visits(num_vertices, seed):
        rows, neighbours = _entries(directions, first, last)
        there = parts[neighbours]
        known = there >= 0
        cells = rows[known].astype(np.int64) * num_parts + there[known]
        counts = np.bincount(cells, minlength=(last - first) * num_parts).reshape(-1, num_parts).tolist()
        inside = neighbours - first
        earlier = (inside >= 0) & (inside < rows)
        near = inside[earlier].tolist()
        bounds = np.searchsorted(rows[earlier], np.arange(last - first + 1)).tolist()
        chosen: list[int] = []
        for row, (count, weight) in enumerate(zip(counts, weights[first:last].tolist(), strict=True)):
            for other in near[bounds[row] : bounds[row + 1]]:
                count[chosen[other]] += 1
            scores = [there * share for there, share in zip(count, free, strict=True)]
            best = max(scores)
            part = scores.index(best) if best > 0 else free.index(max(free))
            chosen.append(part)
            loads[part] += weight
            free[part] = 1 - loads[part] / capacity
        parts[first:last] = chosen
    return parts


def visits(num_vertices: int, seed: int) -> Iterator[tuple[int, int]]:
    """Blocks of consecutive rows, in random order."""
    size = min(max(num_vertices // _BLOCKS, 1), _BLOCK)
    for block in np.random.default_rng(seed).permutation(-(-num_vertices // size)).tolist():
        yield block * size, min((block + 1) * size, num_vertices)


def _entries(
    directions: list[Adjacency], first: int, last: int
) -> tuple[Int32[np.ndarray, " N"], Int32[np.ndarray, " N"]]:
    """The neighbours of consecutive vertices, in all directions: `(place in the block, neighbour)`, by place."""
    found = []
    for adjacency in directions:
        offsets = as_int64(adjacency.offsets[first : last + 1])
        found.append((all_rows(offsets), np.asarray(adjacency.neighbours[int(offsets[0]) : int(offsets[-1])])))
    if len(found) == 1:
        return found[0]
    rows, neighbours = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    by_row = np.argsort(rows, kind="stable")
    return rows[by_row], neighbours[by_row]
