"""Shards of graphs described by statistics: rows that servers hold, read and exchange, by the distribution of degrees.

A graph is taken for symmetric, its servers and intervals for alike. A share of the edges of a server leads to other
servers, to each of them equally often; so do the edges of an interval to the intervals of each. Of a block of n
vertices with degrees d, m edges touch Σ (1 - exp(-m d / Σ d)) different ones. Degrees are lognormal. Intervals of real
graphs are communities (`partition.layout`), whose edges touch fewer.

The intervals that contribute to the sum of a ghost determine its time of sending, so where sums are pushed, a sample of
the ghosts stands for all, each with its degree and its contributors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from statistics import NormalDist
from typing import final

import numpy as np

from dorylax.abstract_array import abstract_array
from dorylax.graph.compressed import Adjacency
from dorylax.graph.partition.simple import even_bounds
from dorylax.graph.shard import DIRECTIONS, MergeSummary, ShardSummary, abstract_rows

_QUANTILES = 4096
"""So many degrees stand for all."""
_even = functools.lru_cache(maxsize=16)(even_bounds)
"""Offsets of rows with equal degrees; one array for all servers of a size."""
_SAMPLE = 256
"""So many ghosts, or a few more, stand for all that a server has of a peer."""


@final
@dataclasses.dataclass(frozen=True)
class DegreeStatistics:
    """Size and degrees of a graph.

    Attributes:
        num_vertices, num_edges: V, and E directed edges.
        spread: Standard deviation of the logarithm of the degrees, ≥ 0.
        cut_ratio: Number of edges from one of P servers to another, over that of vertices dealt at random, 1 - 1/P of
            all; 0 to 1.
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
        """Summaries of the shards of all servers with so many intervals; a ValueError if these are more than vertices."""
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
        of_server = num_edges * cut / max(1, servers - 1)  # edges between it and one peer
        peers = [peer for peer in range(servers) if peer != server]
        sizes_of = [np.diff(even_bounds(stop - start, intervals)).tolist() for start, stop in pairwise(rows.tolist())]
        sizes = sizes_of[server]
        needed = [self.touched(size, of_server / intervals) for size in sizes]
        sends = tuple(tuple((peer, abstract_array((count,), np.int64)) for peer in peers if count) for count in needed)
        counts = np.zeros((servers, intervals), np.int64)
        for peer in peers:
            each = int(edges[peer + 1] - edges[peer]) * cut / (servers - 1) / intervals
            counts[peer] = [self.touched(size, each) for size in sizes_of[peer]]
        ghosts = counts.reshape(-1)
        own = [self.touched(size, num_edges * (1 - cut) / intervals**2) for size in sizes]
        others = [
            min(count, self.touched(size, of_server / intervals**2))
            for count, size in zip(ghosts.tolist(), chain(*sizes_of), strict=True)
            if count
        ]
        reads = np.broadcast_to(np.array([*own, *others], np.int64), (intervals, len(own) + len(others)))
        ghost_bounds = np.concatenate([[0], np.cumsum(ghosts)])
        offsets = _even(num_edges, last - first)
        edge_bounds = tuple(int(offsets[bound]) for bound in bounds)

        def sources(interval: int) -> np.ndarray:
            return _even(edge_bounds[interval + 1] - edge_bounds[interval], int(reads[interval].sum()))

        return ShardSummary(
            server=server,
            rows=(first, last),
            edges=(int(edges[server]), int(edges[server + 1])),
            bounds=bounds,
            edge_bounds=edge_bounds,
            incoming=abstract_rows(offsets),
            outgoing=abstract_rows(offsets),
            ghosts=dict.fromkeys(DIRECTIONS, abstract_array((int(ghosts.sum()),), np.int64)),
            ghost_bounds=dict.fromkeys(DIRECTIONS, ghost_bounds),
            sends=dict.fromkeys(DIRECTIONS, sends),
            reads=dict.fromkeys(DIRECTIONS, reads),
            sources=sources,
            merge=functools.cache(lambda: self._merge(server, reads, ghosts, dict.fromkeys(peers, needed), of_server)),
        )

    def _merge(
        self, server: int, reads: np.ndarray, ghosts: np.ndarray, wanted: Mapping[int, Sequence[int]], edges: float
    ) -> MergeSummary:
        """Partial sums of a server that has so many edges with each peer.

        `ghosts` counts its ghosts by interval of the graph. `wanted` counts, by peer and own interval, the rows that the
        peer has as ghosts and sends sums for.
        """
        intervals = len(reads)
        chosen = [_sample(count, intervals) for count in ghosts.tolist()]
        received = {peer: [_sample(count, intervals) for count in counts] for peer, counts in wanted.items()}
        starts = np.concatenate([[0], np.cumsum(reads.sum(axis=1))])
        ends = int(starts[-1]) + np.cumsum([0, *(sum(map(len, found)) for found in received.values())])
        spans = zip(received, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        weights = np.concatenate([one for found in received.values() for one in found] or [np.zeros(0, np.int64)])
        reader = np.array([i for found in received.values() for i, one in enumerate(found) for _ in one], np.int64)
        entries = np.where(reader == np.arange(intervals)[:, None], weights, 0)
        return MergeSummary(
            starts=starts,
            received=tuple(span for span in spans if span[1] < span[2]),
            size=int(ends[-1]),
            ghost_bounds=np.concatenate([[0], np.cumsum([len(one) for one in chosen])]),
            contributors=self._contributors(server, chosen, intervals, edges),
            ghosts=np.concatenate(chosen),
            # An own row is an entry of each own interval that reads it.
            entries=np.concatenate([reads[:, :intervals].T, entries], axis=1),
        )

    def _contributors(self, server: int, chosen: Sequence[np.ndarray], intervals: int, edges: float) -> Adjacency:
        """Intervals of a server that have edges from each of some ghosts.

        A ghost has a Poisson number of edges, at least one, to intervals that are chosen at random.
        """
        rng = np.random.default_rng(server)
        found = []
        for first in range(0, len(chosen), intervals):
            of_peer = sum(map(len, chosen[first : first + intervals]))
            rows = int(self.num_vertices * intervals / len(chosen))
            mean = edges * _degrees(self.spread) / rows
            shares = np.cumsum(-np.expm1(-mean))
            quantiles = (rng.permutation(of_peer) + 0.5) / max(1, of_peer)
            rate = mean[np.searchsorted(shares, quantiles * shares[-1])]  # of each ghost, edges if it need have none
            # The first that has an edge, where one must; whether those after it have some is up to each.
            one = np.floor(-np.log1p(rng.random(of_peer) * np.expm1(-rate)) * intervals / rate)
            others = rng.random((of_peer, intervals)) < -np.expm1(-rate / intervals)[:, None]
            numbers = np.arange(intervals)
            at = np.minimum(one, intervals - 1)[:, None]
            found.append((numbers == at) | (others & (numbers > at)))
        mask = np.concatenate(found)
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
        return Adjacency(offsets, np.nonzero(mask)[1].astype(np.int32))

    def sampled(self, fanout: int, *, along_edges: bool) -> float:
        """How many neighbours of a vertex are sampled if it has that many, and all of them if it has fewer: the mean.

        Args:
            fanout: at most so many.
            along_edges: whether of the vertices that edges lead to, which have more of them, or of any vertices.
        """
        degrees = _degrees(self.spread) * (self.num_edges / self.num_vertices)
        return float(np.average(np.minimum(degrees, fanout), weights=degrees if along_edges else None))

    def touched(self, vertices: int, edges: float) -> int:
        """How many different ones of so many vertices so many edges touch."""
        return _touched(vertices, edges, self.spread)


@functools.lru_cache(maxsize=4096)
def _touched(vertices: int, edges: float, spread: float) -> int:
    shares = _degrees(spread) / vertices
    return min(vertices, round(vertices * float(np.mean(-np.expm1(-edges * shares)))))


def _sample(count: int, intervals: int) -> np.ndarray:
    """Of the ghosts that belong to one of so many intervals, how many each of a sample stands for."""
    size = min(count, -(-_SAMPLE // intervals))
    return np.diff(even_bounds(count, size)) if size else np.zeros(0, np.int64)


@functools.lru_cache(maxsize=16)
def _degrees(spread: float) -> np.ndarray:
    """Degrees in multiples of their mean, at evenly spaced quantiles."""
    normal = NormalDist()
    logs = spread * np.array([normal.inv_cdf((k + 0.5) / _QUANTILES) for k in range(_QUANTILES)])
    found = np.exp(logs - logs.max())
    found /= found.mean()
    return np.asarray(found)
