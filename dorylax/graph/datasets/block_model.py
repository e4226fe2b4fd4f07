"""The degree-corrected stochastic block model: random undirected graphs with communities and power-law degrees.

The model is B. Karrer and M. E. J. Newman, "Stochastic blockmodels and community structure in networks", Phys. Rev.
E 83, 016107 (2011): each of the m edges joins u and v with a probability proportional to θ_u θ_v ω(community of u,
community of v), where ω mixes a planted part, in which all edges stay inside communities, with a part that ignores
communities, as their synthetic benchmarks do. Edges are drawn independently, so a pair may be joined more than once, as
in their paper; those multi-edges are kept, so that the number of edges is exact. There are no self-loops.

How it is made. Rows of the adjacency matrix are cut into blocks of consecutive vertices, the matrix into tiles. Each
(tile, community) gets its expected number of edges, rounded without bias so that the total is exact; given the number,
the edges of a tile depend on nothing else, so each tile has its own random stream. A row block draws its tiles, those
below the diagonal as the transposes of those above it (each is thus drawn twice: cheaper than keeping it), sorts them
and is finished. Memory beyond the result is one row block per thread, and the result does not depend on threads.

An endpoint is drawn in proportion to θ in constant time: θ are small integers, and an array lists every vertex θ times.
This module knows nothing of features, labels or splits (see `communities`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
from jaxtyping import Int64

from dorylax.aligned import empty
from dorylax.graph.datasets.random_streams import Stream, halves, scaled
from dorylax.graph.graph import Graph

_EDGES_PER_TILE = 1 << 16  # keeps a tile's arrays in a core's cache
_MOST_THREADS = 16  # each holds a row block
_SMALLEST_PROPENSITY = 4
_LARGEST_RATIO = 100  # of propensities: beyond it a hub would hold a visible share of a small graph's edges
_EDGE_STREAM, _PROPENSITY_STREAM, _ROUNDING_STREAM = 1, 2, 3


@dataclasses.dataclass(frozen=True, eq=False)
class BlockModel:
    """A degree-corrected stochastic block model with a given number of edges.

    Attributes:
        communities: the community of each vertex, 0 … C-1, int32 `[V]`.
        propensities: θ: expected degrees are proportional to these, integers ≥ 1, int64 `[V]`.
        num_edges: E, directed edges: twice the number of undirected ones.
        homophily: expected fraction of edges inside a community; what chance gives where that is more.
        seed: of the random streams, ≥ 0.
    """

    communities: np.ndarray
    propensities: np.ndarray
    num_edges: int
    homophily: float
    seed: int

    def sample(self) -> Graph:
        """Draws the graph: symmetric, no self-loops, multi-edges kept, exactly `num_edges` directed edges."""
        starts = np.concatenate([[0], np.cumsum(self._arcs_per_block())])
        degrees = np.zeros(self._num_vertices, np.int64)
        sources = empty((self.num_edges,), np.int32)

        def fill(block: int) -> None:
            rows = slice(block * self._block_size, min((block + 1) * self._block_size, self._num_vertices))
            self._fill_block(block, degrees[rows], sources[starts[block] : starts[block + 1]])

        _ = self._stubs  # before the threads need it: each would make its own
        with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS, self._num_blocks)) as threads:
            list(threads.map(fill, range(self._num_blocks)))  # raises here what a thread raised
        offsets = empty((self._num_vertices + 1,), np.int64)
        offsets[0] = 0
        np.cumsum(degrees, out=offsets[1:])
        return Graph(offsets, sources, symmetric=True, self_loops="none", placed="source")

    @property
    def _num_vertices(self) -> int:
        return len(self.communities)

    @cached_property
    def _num_communities(self) -> int:
        return int(self.communities.max()) + 1

    @cached_property
    def _block_size(self) -> int:
        blocks = max(1, math.isqrt(self.num_edges // _EDGES_PER_TILE))
        return -(-self._num_vertices // blocks)

    @cached_property
    def _num_blocks(self) -> int:
        return -(-self._num_vertices // self._block_size)

    @cached_property
    def _mass(self) -> np.ndarray:
        """Sum of propensities by (block, community), int64 `[B, C]`."""
        return self._sum_by_cell(self.propensities)

    @cached_property
    def _cell(self) -> np.ndarray:
        """The (block, community) of each vertex as one number, int64 `[V]`."""
        block = np.arange(self._num_vertices, dtype=np.int64) // self._block_size
        cell: np.ndarray = block * self._num_communities + self.communities
        return cell

    def _sum_by_cell(self, values: np.ndarray) -> np.ndarray:
        # bincount adds float64: exact for these integers up to 2⁵³
        total: np.ndarray = np.bincount(self._cell, values, self._num_blocks * self._num_communities)
        summed: np.ndarray = total.astype(np.int64).reshape(self._num_blocks, self._num_communities)
        return summed

    @cached_property
    def _stubs(self) -> np.ndarray:
        """Every vertex as often as its propensity, ordered by block, then community, int32 `[Σθ]`."""
        order = np.argsort(self._cell, kind="stable").astype(np.int32)
        return np.repeat(order, self.propensities[order])

    @cached_property
    def _ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and number of each community's stubs in a block; last column: of the block's. int64 `[B, C+1]` each."""
        ends = np.cumsum(self._mass.reshape(-1)).reshape(self._mass.shape)
        start, size = ends - self._mass, self._mass
        return np.column_stack([start, start[:, 0]]), np.column_stack([size, size.sum(1)])

    @cached_property
    def _edges_per_cell(self) -> np.ndarray:
        """Undirected edges of each upper tile by community, last column: regardless of it. int64 `[B(B+1)/2, C+1]`."""
        size = self._ranges[1].astype(np.float64)
        squares = self._sum_by_cell(self.propensities**2)
        squares = np.column_stack([squares, squares.sum(1)]).astype(np.float64)
        upper = np.triu_indices(self._num_blocks)
        weight = 2 * size[upper[0]] * size[upper[1]]
        diagonal = upper[0] == upper[1]
        weight[diagonal] = weight[diagonal] / 2 - squares[upper[0][diagonal]]  # unordered pairs without u = v
        weight[:, :-1] /= size.sum(0)[:-1]  # makes expected degrees inside a community proportional to θ
        planted, chance = _last_sum(weight[:, :-1]), _last_sum(weight[:, -1])
        share = self._planted_share() if planted else 0.0
        weight[:, :-1] *= share / (planted or 1.0)
        weight[:, -1] *= (1 - share) / (chance or 1.0)
        uniform = float(Stream(self.seed, _ROUNDING_STREAM).uniform(1)[0])
        return systematic_rounding(weight.reshape(-1), self.num_edges // 2, uniform).reshape(weight.shape)

    def _planted_share(self) -> float:
        """λ such that λ + (1 - λ)·(chance of a random edge to be inside) is the homophily."""
        mass = [int(m) for m in self._mass.sum(0)]
        chance = sum(m * m for m in mass) / sum(mass) ** 2
        return 0.0 if chance >= self.homophily else (self.homophily - chance) / (1 - chance)

    def _arcs_per_block(self) -> np.ndarray:
        per_tile = self._edges_per_cell.sum(1)
        row, column = np.triu_indices(self._num_blocks)
        arcs = np.zeros(self._num_blocks, np.int64)
        np.add.at(arcs, row, per_tile)
        np.add.at(arcs, column, per_tile)
        return arcs

    def _fill_block(self, block: int, degrees: np.ndarray, sources: np.ndarray) -> None:
        first = np.int64(block * self._block_size)
        keys, position = np.empty(len(sources), np.int64), 0
        for other in range(self._num_blocks):
            low, high = self._draw_tile(min(block, other), max(block, other))
            ends = [(low, high)] if block < other else [(high, low)] if block > other else [(low, high), (high, low)]
            for rows, columns in ends:
                key = keys[position : position + len(rows)]
                np.subtract(rows, first, out=key)
                key <<= 32
                key |= columns
                position += len(rows)
        keys.sort()
        sources[:] = keys.view(np.int32)[::2]  # the low halves
        degrees[:] = np.bincount(keys >> 32, minlength=len(degrees))

    def _draw_tile(self, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
        """The edges of tile (row ≤ column): one end in each block, int32 `[n]` each."""
        tile = row * self._num_blocks - row * (row - 1) // 2 + column - row
        counts = self._edges_per_cell[tile]
        start, size = self._ranges
        where = [np.repeat(x, counts) for x in (start[row], size[row], start[column], size[column])]
        stream = Stream(self.seed, _EDGE_STREAM, row, column)
        low, high = self._draw_edges(stream, *where)
        if row == column:
            loops = np.flatnonzero(low == high)
            while loops.size:  # rejection: the counts are those of pairs u ≠ v
                low[loops], high[loops] = self._draw_edges(stream, *(x[loops] for x in where))
                loops = loops[low[loops] == high[loops]]
        return low, high

    def _draw_edges(
        self, stream: Stream, start: np.ndarray, size: np.ndarray, other_start: np.ndarray, other_size: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        high, low = halves(stream.words(len(start)))
        one = scaled(high, size.view(np.uint64))
        other = scaled(low, other_size.view(np.uint64))
        one += start
        other += other_start
        return self._stubs[one], self._stubs[other]


def power_law_propensities(num_vertices: int, exponent: float, seed: int) -> Int64[np.ndarray, " V"]:
    """Integers from a bounded Pareto distribution, density ∝ θ^-exponent.

    Args:
        num_vertices: V.
        exponent: of the density, > 1; degrees of social graphs lie between 2 and 3.
        seed: of the random stream, ≥ 0.

    Returns:
        int64 `[V]`, largest to smallest at most 100 or √V, whichever is less.
    """
    ratio = max(1.0, min(_LARGEST_RATIO, math.sqrt(num_vertices)))
    shape = exponent - 1
    uniform = Stream(seed, _PROPENSITY_STREAM).uniform(num_vertices)
    # The power is the one operation here that may differ in its last bit between processors; rounding hides it.
    theta = _SMALLEST_PROPENSITY * (1 - uniform * (1 - ratio**-shape)) ** (-1 / shape)
    rounded: np.ndarray = np.rint(theta).astype(np.int64)
    return rounded


def systematic_rounding(weights: np.ndarray, total: int, uniform: float) -> Int64[np.ndarray, " n"]:
    """Integers that add up to `total`, each in expectation, and within 1 of, its share of it by weight.

    Args:
        weights: ≥ 0, not all 0 unless total is 0, `[n]`.
        total: what the result adds up to.
        uniform: a random number in [0, 1).
    """
    cumulative = np.cumsum(weights, dtype=np.float64)
    if total == 0:
        return np.zeros(len(weights), np.int64)
    ends = np.floor(cumulative * (total / cumulative[-1]) + uniform).astype(np.int64)
    np.clip(ends, 0, total, out=ends)
    ends[cumulative == cumulative[-1]] = total  # nothing is left for the weightless cells after the last one
    return np.diff(ends, prepend=0)


def _last_sum(values: np.ndarray) -> float:
    """The sum from first to last: `numpy.sum` adds in an order that may depend on the processor."""
    return float(np.cumsum(values)[-1]) if values.size else 0.0
