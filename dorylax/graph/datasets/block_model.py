"""The degree-corrected stochastic block model: random undirected graphs with communities and power-law degrees.

The model is B. Karrer and M. E. J. Newman, "Stochastic blockmodels and community structure in networks", Phys. Rev.
E 83, 016107 (2011): each of the m edges joins u and v with a probability proportional to θ_u θ_v ω(community of u,
community of v), where ω mixes a planted part, in which all edges stay inside communities, with a part that ignores
communities, as their synthetic benchmarks do. Edges are drawn independently, so a pair may be joined more than once, as
in their paper; those multi-edges are kept, so that the number of edges is exact. There are no self-loops.

How it is made. Rows of the adjacency matrix are cut into blocks of consecutive vertices, the matrix into tiles. Each
(tile, community) gets its expected number of edges, rounded without bias so that the total is exact; given the number,
each tile draws its edges from its own random stream. A row block draws its tiles, those
below the diagonal as the transposes of those above it (each is thus drawn twice: cheaper than keeping it), sorts them
and is finished. Apart from the finished rows, memory is a row block per thread and 17 bytes a vertex, and the result
does not depend on threads.

An endpoint is drawn in proportion to θ in constant time: θ are small integers, and of the list of all vertices, each θ
times, every fourth entry is kept (`_Block`).
Features, labels and splits are in `communities`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt16

from dorylax.aligned import empty
from dorylax.graph.datasets.random_streams import Stream, halves, scaled
from dorylax.graph.graph import Graph
from dorylax.graph.rows import in_order, spans
from dorylax.machine import cores

_EDGES_PER_TILE = 1 << 16
_EDGES_AT_A_TIME = 1 << 16  # keeps arrays in a core's cache
_MOST_THREADS = 16  # each holds a row block
_SMALLEST_PROPENSITY = 4
_LARGEST_RATIO = 100  # of propensities: beyond it a hub would hold a visible share of a small graph's edges
_EDGE_STREAM, _PROPENSITY_STREAM, _ROUNDING_STREAM = 1, 2, 3


class Rows(NamedTuple):
    """Consecutive rows: degrees int64 `[n]`, and neighbours of each vertex, ascending, int32 `[Σ degrees]`."""

    degrees: np.ndarray
    neighbours: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class BlockModel:
    """A degree-corrected stochastic block model with a given number of edges.

    Attributes:
        communities: The community of each vertex, 0 … C-1, integers `[V]`.
        propensities: θ: expected degrees are proportional to these, integers ≥ 4, `[V]`.
        num_edges: E, directed edges: twice the number of undirected ones.
        homophily: Expected fraction of edges inside a community, if it is more than by chance.
        seed: Seed of the random streams, ≥ 0.
    """

    communities: np.ndarray
    propensities: np.ndarray
    num_edges: int
    homophily: float
    seed: int

    def sample(self) -> Graph:
        """Draws the graph: symmetric, no self-loops, multi-edges kept, exactly `num_edges` directed edges."""
        degrees = np.empty(self._num_vertices, np.int64)
        sources = empty((self.num_edges,), np.int32)
        row = edge = 0
        for rows in self.row_blocks(min(cores(), _MOST_THREADS)):
            degrees[row : row + len(rows.degrees)] = rows.degrees
            sources[edge : edge + len(rows.neighbours)] = rows.neighbours
            row += len(rows.degrees)
            edge += len(rows.neighbours)
        offsets = empty((self._num_vertices + 1,), np.int64)
        offsets[0] = 0
        np.cumsum(degrees, out=offsets[1:])
        return Graph(offsets, sources, symmetric=True, self_loops="none", placed="source")

    def row_blocks(self, threads: int) -> Iterator[Rows]:
        """Draw the graph of `sample` block by block, from first row to last; `drawing_bytes` estimates the memory."""
        _ = self._arcs_per_block  # before the threads need it: each would make its own
        return in_order(self._rows, range(self._num_blocks), threads)

    @property
    def _num_vertices(self) -> int:
        return len(self.communities)

    @cached_property
    def _num_communities(self) -> int:
        return int(self.communities.max()) + 1

    @cached_property
    def _block_size(self) -> int:
        return -(-self._num_vertices // _most_blocks(self.num_edges))

    @property
    def _num_blocks(self) -> int:
        return -(-self._num_vertices // self._block_size)

    @cached_property
    def _blocks(self) -> list[_Block]:
        def block(span: tuple[int, int]) -> _Block:
            first, last = span
            return _Block.of(first, self.communities[first:last], self.propensities[first:last], self._num_communities)

        return list(in_order(block, spans(self._num_vertices, self._block_size), min(cores(), _MOST_THREADS)))

    @cached_property
    def _edges(self) -> dict[tuple[int, int], tuple[Int32[np.ndarray, " n"], Int64[np.ndarray, " n"]]]:
        """Groups that have vertices on both sides of each tile (row ≤ column), and their undirected edges.

        A group is a community, or (the last one) all vertices regardless of it.
        """
        size = np.stack([block.size for block in self._blocks]).astype(np.float64)
        squares = np.stack([block.squares for block in self._blocks]).astype(np.float64)
        there = size > 0
        shared = [np.nonzero(there[row] & there[row:]) for row in range(self._num_blocks)]
        row = np.repeat(np.arange(self._num_blocks, dtype=np.int32), [len(one) for one, _ in shared])
        column, group = (np.concatenate(parts).astype(np.int32) for parts in zip(*shared, strict=True))
        column += row
        weight = 2 * size[row, group] * size[column, group]
        diagonal = row == column
        weight[diagonal] = weight[diagonal] / 2 - squares[row, group][diagonal]  # unordered pairs without u = v
        inside = group < self._num_communities
        weight[inside] /= size.sum(0)[group[inside]]  # makes expected degrees inside a community proportional to θ
        planted, chance = _last_sum(weight[inside]), _last_sum(weight[~inside])
        share = self._planted_share(size) if planted else 0.0
        weight[inside] *= share / (planted or 1.0)
        weight[~inside] *= (1 - share) / (chance or 1.0)
        uniform = float(Stream(self.seed, _ROUNDING_STREAM).uniform(1)[0])
        counts = systematic_rounding(weight, self.num_edges // 2, uniform)
        (begins,) = np.nonzero((np.diff(row, prepend=-1) != 0) | (np.diff(column, prepend=-1) != 0))
        tiles = zip(row[begins].tolist(), column[begins].tolist(), strict=True)
        cuts = (np.split(array, begins[1:]) for array in (group, counts))
        return dict(zip(tiles, zip(*cuts, strict=True), strict=True))

    def _planted_share(self, size: np.ndarray) -> float:
        """λ such that λ + (1 - λ)·(chance of a random edge to be inside) is the homophily."""
        mass = [int(m) for m in size[:, :-1].sum(0)]
        chance = sum(m * m for m in mass) / sum(mass) ** 2
        return 0.0 if chance >= self.homophily else (self.homophily - chance) / (1 - chance)

    @cached_property
    def _arcs_per_block(self) -> Int64[np.ndarray, " B"]:
        arcs = np.zeros(self._num_blocks, np.int64)
        for ends, (_, counts) in self._edges.items():
            np.add.at(arcs, list(ends), counts.sum())  # twice on the diagonal
        return arcs

    def _rows(self, block: int) -> Rows:
        keys, position = np.empty(int(self._arcs_per_block[block]), np.int64), 0
        halves_of_keys = keys.view(np.int32).reshape(-1, 2)  # the low half, then the high one
        for other in range(self._num_blocks):
            for low, high in self._draw_tile(min(block, other), max(block, other)):
                ends = (
                    [(low, high)] if block < other else [(high, low)] if block > other else [(low, high), (high, low)]
                )
                for rows, columns in ends:
                    part = halves_of_keys[position : position + len(rows)]
                    part[:, 0], part[:, 1] = columns, rows
                    position += len(rows)
        keys.sort()
        first, num_rows = self._blocks[block].first, len(self._blocks[block].vertices)
        degrees = np.zeros(num_rows, np.int64)
        for start, stop in spans(len(keys)):
            degrees += np.bincount(halves_of_keys[start:stop, 1] - first, minlength=num_rows)
        return Rows(degrees, halves_of_keys[:, 0].copy())

    def _draw_tile(self, row: int, column: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The edges of tile (row ≤ column), in parts: one end in each block, int32 `[n]` each."""
        groups, counts = self._edges[row, column]
        stream = Stream(self.seed, _EDGE_STREAM, row, column)
        ends = np.cumsum(counts)
        loops = np.zeros_like(counts)
        for start, stop in spans(int(ends[-1]), _EDGES_AT_A_TIME):
            part = np.diff(np.clip(ends, start, stop), prepend=start)
            yield self._draw_edges(stream, row, column, groups, part, loops=loops)
        while loops.any():  # rejection: the counts are those of pairs u ≠ v
            again, loops = loops, np.zeros_like(counts)
            yield self._draw_edges(stream, row, column, groups, again, loops=loops)

    def _draw_edges(
        self, stream: Stream, row: int, column: int, groups: np.ndarray, counts: np.ndarray, *, loops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Edges of a tile, as many of each group as `counts` says, less self-loops, whose numbers are added to `loops`."""
        high, low = halves(stream.words(int(counts.sum())))
        one = self._blocks[row].drawn(high, groups, counts)
        other = self._blocks[column].drawn(low, groups, counts)
        if row == column and (equal := one == other).any():
            ends = np.cumsum(counts)
            loops += np.bincount(np.searchsorted(ends, np.flatnonzero(equal), side="right"), minlength=len(counts))
            one, other = one[~equal], other[~equal]
        return one, other


class _Block(NamedTuple):
    """Consecutive vertices, of which one can be drawn in proportion to θ: from a community, or from all.

    Think of a list of the vertices by community, each θ times. θ is at least 4, so four entries that follow each other are
    of at most two vertices: the first one and its number among the four suffice.

    Attributes:
        first: vertex.
        vertices: by community, int32 `[n]`.
        fours: of each four entries of the list: where in `vertices` the first one is, times 4, and how many of the four
            are of the next one; of the smallest unsigned type, `[⌈Σθ / 4⌉]`.
        start: where each community begins in the list; last entry: the whole list, 0. int64 `[C+1]`.
        size: how long it is there, int64 `[C+1]`.
        squares: sum of θ², int64 `[C+1]`.
    """

    first: int
    vertices: np.ndarray
    fours: np.ndarray
    start: np.ndarray
    size: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, first: int, communities: np.ndarray, propensities: np.ndarray, num_communities: int) -> _Block:
        """Make a block of the data of its vertices."""
        order = np.argsort(communities, kind="stable")
        theta = propensities[order].astype(np.int64)
        ends = np.cumsum(theta)
        begin_before = -(-ends // 4)  # of the fours, how many begin before this end
        place = np.repeat(np.arange(len(order)), np.diff(begin_before, prepend=0))
        others = np.maximum(4 * np.arange(1, len(place) + 1) - ends[place], 0)
        # bincount adds float64: exact for these integers up to 2⁵³
        size, squares = (
            np.bincount(communities, power.astype(np.float64), num_communities).astype(np.int64)
            for power in (propensities, propensities.astype(np.int64) ** 2)
        )
        return cls(
            first,
            (order + first).astype(np.int32),
            (4 * place + others).astype(np.min_scalar_type(4 * len(order))),
            np.append(np.cumsum(size) - size, 0),
            np.append(size, size.sum()),
            np.append(squares, squares.sum()),
        )

    def drawn(self, numbers: np.ndarray, groups: np.ndarray, counts: np.ndarray) -> Int32[np.ndarray, " n"]:
        """Vertices by numbers uniform on 0 … 2³²-1, which are overwritten: as many of each group as `counts` says."""
        entry = scaled(numbers, np.repeat(self.size[groups], counts).view(np.uint64))
        entry += np.repeat(self.start[groups], counts)
        place = self.fours[entry >> 2].astype(np.int64)
        entry &= 3
        place += entry  # carries where the entry is of the next vertex
        place >>= 2
        drawn: np.ndarray = self.vertices[place]
        return drawn


def drawing_bytes(num_vertices: int, num_edges: int, exponent: float, *, groups: int, threads: int) -> int:
    """Estimate the peak memory of `BlockModel.row_blocks` without its result.

    `groups` is the approximate number of groups of a tile: communities that have vertices on both sides, and 1.
    """
    mean = float(_propensity((np.arange(4096) + 0.5) / 4096, num_vertices, exponent).mean())
    per_vertex = 4 + mean  # `_Block.vertices`, `_Block.fours`
    # Each thread has the edges of a block as they are sorted, and as they are taken; one more block is being taken.
    blocks = _most_blocks(num_edges)
    drawn = (12 * threads + 4) * 1.1 * num_edges / blocks + threads * 128 * _EDGES_AT_A_TIME
    entries = groups * blocks * (blocks + 1) // 2  # of `_edges`, which keep 12 of 64 bytes
    return round(per_vertex * num_vertices + max(64 * entries, 12 * entries + drawn))


def power_law_propensities(num_vertices: int, exponent: float, seed: int) -> UInt16[np.ndarray, " V"]:
    """Integers from a bounded Pareto distribution, density ∝ θ^-exponent (> 1; degrees of social graphs: 2 to 3).

    They range from 4 to at most 400 or 4 √V, whichever is less.
    """
    stream = Stream(seed, _PROPENSITY_STREAM)
    rounded = np.empty(num_vertices, np.uint16)
    for start, stop in spans(num_vertices):
        rounded[start:stop] = np.rint(_propensity(stream.uniform(stop - start), num_vertices, exponent))
    return rounded


def _propensity(uniform: np.ndarray, num_vertices: int, exponent: float) -> np.ndarray:
    ratio = max(1.0, min(_LARGEST_RATIO, math.sqrt(num_vertices)))
    shape = exponent - 1
    # The power is the one operation here that may differ in its last bit between processors; rounding hides it.
    theta: np.ndarray = _SMALLEST_PROPENSITY * (1 - uniform * (1 - ratio**-shape)) ** (-1 / shape)
    return theta


def _most_blocks(num_edges: int) -> int:
    """About the number of row blocks."""
    return max(1, math.isqrt(num_edges // _EDGES_PER_TILE))


def systematic_rounding(weights: np.ndarray, total: int, uniform: float) -> Int64[np.ndarray, " n"]:
    """Integers that add up to `total`, each in expectation, and within 1 of, its share of it by weight.

    Weights are ≥ 0, and not all 0 unless the total is 0. `uniform` is a random number in [0, 1).
    """
    cumulative = np.cumsum(weights, dtype=np.float64)
    if total == 0:
        return np.zeros(len(weights), np.int64)
    ends = np.floor(cumulative * (total / cumulative[-1]) + uniform).astype(np.int64)
    np.clip(ends, 0, total, out=ends)
    ends[cumulative == cumulative[-1]] = total  # the weightless cells after the last one get 0
    return np.diff(ends, prepend=0)


def _last_sum(values: np.ndarray) -> float:
    """The sum from first to last: `numpy.sum` adds in an order that may depend on the processor."""
    return float(np.cumsum(values)[-1]) if values.size else 0.0
