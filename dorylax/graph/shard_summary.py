"""Numbers of the rows and edges that each server holds, sends and reads, for simulations of timing alone.

`ShardSummary.of` counts a real shard. `dorylax.graph.degree_statistics` makes summaries of graphs described by
statistics. Attributes and methods are those of `Shard`; arrays of vertices are hollow (`dorylax.hollow`): only their
lengths count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import final

import numpy as np

from dorylax.graph.compressed import Adjacency
from dorylax.graph.shard import AnyMerge, Direction, Sends, Shard
from dorylax.hollow import hollow

Counts = Sequence[Sequence[tuple[int, int]]]
"""Of each interval `((peer, rows), …)`: how many of its rows each peer has as ghosts."""


@final
class ShardSummary:
    """See `Shard` for the attributes.

    Args:
        server: s.
        rows: first row of the laid-out graph that it owns, and the row after its last.
        edges: Ids of its first in-edge, and the id after its last.
        bounds: its intervals in local rows.
        edge_bounds: their in-edges in local edges.
        offsets: by direction, where the edges of each local row begin, int64 `[n+1]`.
        ghost_bounds: by direction, int64 `[K+1]`.
        sends: by direction.
        reads: by direction and own interval, how many different rows of each block it reads: int64 `[k, B]`, see
            `Shard.block_counts`.
        sources: gives, of an interval, where the edges of each of its sources begin, int64 `[U+1]`.
        merge: see `Shard.merge`.
    """

    def __init__(
        self,
        *,
        server: int,
        rows: tuple[int, int],
        edges: tuple[int, int],
        bounds: tuple[int, ...],
        edge_bounds: tuple[int, ...],
        offsets: Mapping[Direction, np.ndarray],
        ghost_bounds: Mapping[Direction, np.ndarray],
        sends: Mapping[Direction, Counts],
        reads: Mapping[Direction, np.ndarray],
        sources: Callable[[int], np.ndarray],
        merge: Callable[[], AnyMerge],
    ) -> None:
        self.server = server
        self.first, self.last = rows
        self.first_edge, self.last_edge = edges
        self.bounds, self.edge_bounds = bounds, edge_bounds
        self.incoming, self.outgoing = (_adjacency(offsets[direction]) for direction in _DIRECTIONS)
        self.ghost_bounds = dict(ghost_bounds)
        self.ghosts = {way: hollow((int(found[-1]),), np.int64) for way, found in ghost_bounds.items()}
        self.sends: dict[Direction, Sends] = {
            direction: tuple(tuple((peer, hollow((count,), np.int64)) for peer, count in one) for one in found)
            for direction, found in sends.items()
        }
        self._reads = dict(reads)
        self._sources = sources
        self._make_merge = merge

    @classmethod
    def of(cls, shard: Shard) -> ShardSummary:
        """Counts a shard."""
        intervals = range(shard.num_intervals)
        sources, merge = [shard.transposed(interval).offsets for interval in intervals], shard.merge()
        return cls(
            server=shard.server,
            rows=(shard.first, shard.last),
            edges=(shard.first_edge, shard.last_edge),
            bounds=shard.bounds,
            edge_bounds=shard.edge_bounds,
            offsets={"in": shard.incoming.offsets, "out": shard.outgoing.offsets},
            ghost_bounds=shard.ghost_bounds,
            sends={
                direction: [[(peer, len(rows)) for peer, rows in one] for one in found]
                for direction, found in shard.sends.items()
            },
            reads={
                direction: np.stack([shard.block_counts(direction, interval) for interval in intervals])
                for direction in _DIRECTIONS
            },
            sources=sources.__getitem__,
            merge=lambda: merge,
        )

    @property
    def num_rows(self) -> int:
        """See `Shard`."""
        return self.last - self.first

    @property
    def num_intervals(self) -> int:
        """See `Shard`."""
        return len(self.bounds) - 1

    def block_counts(self, direction: Direction, interval: int) -> np.ndarray:
        """See `Shard`."""
        found: np.ndarray = self._reads[direction][interval]
        return found

    def unique_sources(self, interval: int) -> np.ndarray:
        """See `Shard`."""
        return hollow((int(self._reads["in"][interval].sum()),), np.int32)

    def compact(self, interval: int) -> Adjacency:
        """See `Shard`."""
        bounds = self.incoming.offsets[self.bounds[interval] : self.bounds[interval + 1] + 1]
        return _adjacency(bounds - bounds[0])

    def transposed(self, interval: int) -> Adjacency:
        """See `Shard`."""
        return _adjacency(self._sources(interval))

    @cached_property
    def _merge(self) -> AnyMerge:
        return self._make_merge()

    def merge(self) -> AnyMerge:
        """See `Shard`."""
        return self._merge


AnyShard = Shard | ShardSummary

_DIRECTIONS: tuple[Direction, ...] = ("in", "out")


def _adjacency(offsets: np.ndarray) -> Adjacency:
    return Adjacency(offsets, hollow((int(offsets[-1]),), np.int32))
