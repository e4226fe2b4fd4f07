"""Shards of graphs that nobody has: how many rows servers hold, read and exchange, by what is known of their degrees.

A graph is taken for symmetric, its servers and intervals for alike. Of the edges of a server a share leads to other
servers, to each of them equally often; so do the edges of an interval to the intervals of each. Whose edge it is, the degree
decides: of a block of n vertices with degrees d, m edges touch Σ (1 - exp(-m d / Σ d)) different ones. Degrees are
lognormal. Intervals of real graphs are communities (`partition.layout`), whose edges touch fewer.
"""

from __future__ import annotations

import dataclasses
import functools
from statistics import NormalDist
from typing import final

import numpy as np

from dorylax.graph.partition.simple import even_bounds
from dorylax.graph.shard_summary import ShardSummary

_QUANTILES = 4096
"""So many degrees stand for all."""


@final
@dataclasses.dataclass(frozen=True)
class DegreeStatistics:
    """What is known of a graph.

    Attributes:
        num_vertices: V.
        num_edges: E, directed edges.
        spread: standard deviation of the logarithm of the degrees, ≥ 0.
        cut_ratio: edges that lead from one of P servers to another, over those of vertices that are dealt at random, of
            which 1 - 1/P do; 0 to 1.

    Raises:
        ValueError: a number out of range.
    """

    num_vertices: int
    num_edges: int
    spread: float = 1.0
    cut_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name in ("num_vertices", "num_edges"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be ≥ 1, got {getattr(self, name)}")
        if not self.spread >= 0:
            raise ValueError(f"spread must be ≥ 0, got {self.spread}")
        if not 0 <= self.cut_ratio <= 1:
            raise ValueError(f"cut_ratio must be in 0 … 1, got {self.cut_ratio}")

    def shards(self, servers: int, intervals: int) -> list[ShardSummary]:
        """What each server holds.

        Args:
            servers: P ≥ 1.
            intervals: k ≥ 1, of each server.

        Raises:
            ValueError: there are more intervals than vertices.
        """
        if servers * intervals > self.num_vertices:
            raise ValueError(
                f"{servers} servers × {intervals} intervals are more than the {self.num_vertices} vertices: give fewer"
            )
        rows = even_bounds(self.num_vertices, servers)
        edges = even_bounds(self.num_edges, servers)
        cut = self.cut_ratio * (1 - 1 / servers)
        return [self._shard(server, intervals, rows=rows, edges=edges, cut=cut) for server in range(servers)]

    def _shard(self, server: int, intervals: int, *, rows: np.ndarray, edges: np.ndarray, cut: float) -> ShardSummary:
        servers = len(rows) - 1
        first, last = (int(bound) for bound in rows[server : server + 2])
        bounds = tuple(even_bounds(last - first, intervals).tolist())
        num_edges = int(edges[server + 1] - edges[server])
        sizes = np.diff(np.asarray(bounds)).tolist()
        of_server = num_edges * cut / max(1, servers - 1)  # edges between it and one peer
        peers = [peer for peer in range(servers) if peer != server]
        # All intervals of a server are alike, so one number holds for each size of a block.
        needed = {size: self._touched(size, of_server / intervals) for size in set(sizes)}
        sends = [[(peer, needed[size]) for peer in peers if needed[size]] for size in sizes]
        ghosts = np.zeros(servers * intervals, np.int64)
        of_peers = {peer: np.diff(even_bounds(int(rows[peer + 1] - rows[peer]), intervals)).tolist() for peer in peers}
        for peer, found in of_peers.items():
            each = int(edges[peer + 1] - edges[peer]) * cut / (servers - 1) / intervals
            ghosts[peer * intervals : (peer + 1) * intervals] = [self._touched(size, each) for size in found]
        own = [self._touched(size, num_edges * (1 - cut) / intervals**2) for size in sizes]
        others = [
            min(int(ghosts[peer * intervals + k]), self._touched(size, of_server / intervals**2))
            for peer, found in of_peers.items()
            for k, size in enumerate(found)
            if ghosts[peer * intervals + k]
        ]
        reads = np.broadcast_to(np.array([*own, *others], np.int64), (intervals, len(own) + len(others)))
        ghost_bounds = np.concatenate([[0], np.cumsum(ghosts)])
        offsets = _linear(last - first, num_edges)
        return ShardSummary(
            server=server,
            rows=(first, last),
            edges=(int(edges[server]), int(edges[server + 1])),
            bounds=bounds,
            edge_bounds=tuple(int(offsets[bound]) for bound in bounds),
            offsets={"in": offsets, "out": offsets},
            ghost_bounds={"in": ghost_bounds, "out": ghost_bounds},
            sends={"in": sends, "out": sends},
            reads={"in": reads, "out": reads},
        )

    def _touched(self, vertices: int, edges: float) -> int:
        """How many different ones of so many vertices so many edges touch."""
        return _touched(vertices, edges, self.spread)


@functools.lru_cache(maxsize=4096)
def _touched(vertices: int, edges: float, spread: float) -> int:
    shares = _degrees(spread) / vertices
    return min(vertices, round(vertices * float(np.mean(-np.expm1(-edges * shares)))))


@functools.lru_cache(maxsize=16)
def _degrees(spread: float) -> np.ndarray:
    """Degrees in multiples of their mean, at evenly spaced quantiles."""
    normal = NormalDist()
    logs = spread * np.array([normal.inv_cdf((k + 0.5) / _QUANTILES) for k in range(_QUANTILES)])
    found = np.exp(logs - logs.max())
    found /= found.mean()
    return np.asarray(found)


@functools.lru_cache(maxsize=8)
def _linear(rows: int, edges: int) -> np.ndarray:
    """Offsets of rows with equal degrees; one array for all servers of a size."""
    return np.arange(rows + 1, dtype=np.int64) * edges // rows
