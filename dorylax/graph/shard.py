"""The part of a laid-out graph that one server holds: its rows in local numbering, its ghosts, and the rows it sends.

`cutting` cuts it out of a graph. The laid-out graph is `graph.reorder(layout.order)`: server s owns rows
`layout.server_bounds[s]:layout.server_bounds[s+1]`. Locally these are rows 0 … n-1; *ghosts*, vertices of other servers at
the other end of its edges, follow them as rows n … n+G-1, ascending. Ghosts over in-edges and over out-edges are numbered
apart (in a symmetric graph they are the same).

Rows come to a server in two ways. *Pulled*: it reads rows of its ghosts, which their owners send (`Part.sends`).
*Pushed*: every interval makes partial sums for the sources of its in-edges (`Shard.transposed`); those for ghosts are
added up over the intervals of the server and sent to the owner, which adds them up (`Merge`) in a fixed order.

Simulations of timing need the numbers of these rows and edges alone: a `ShardSummary` has arrays of vertices without values
(`dorylax.abstract_array`). `degree_statistics` makes summaries of graphs described by statistics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.abstract_array import abstract_array
from dorylax.graph.compressed import Adjacency
from dorylax.graph.rows import ranked, transpose


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Contributors of partial sums, and the order in which sums are sent and received.

    Partial sums lie in one array of `size` rows: first the sums of interval i at `starts[i]:starts[i+1]`, in the order of
    `Shard.unique_sources(i)`, then those of each peer. A *block* of it has its own epoch: the rows of each own
    interval, then each row that is received.

    Attributes:
        starts: int64 `[k+1]`.
        received: `(peer, first, last)`: the peer's sums lie at `first:last`, in the order of its ghosts of this
            server's rows; peers ascending, only those that have some.
        size: Rows of the array.
        ghost_bounds: int64 `[K+1]`, the ghosts that belong to each interval of the whole graph; see `Part`.
        contributors: Own intervals that have an edge from each ghost, ascending, `[G_in]` rows.
    """

    starts: np.ndarray
    received: tuple[tuple[int, int, int], ...]
    size: int
    ghost_bounds: np.ndarray
    contributors: Adjacency


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Merge(Sums):
    """Sums of a shard.

    Attributes:
        rows: Entries of the array that are summed into each local row, `[n + G_in]` rows, int32: for own rows those of
            own intervals in order, then those of peers in order; for ghosts those of own intervals alone, to be sent.
        bounds: The server's intervals in local rows.
    """

    rows: Adjacency
    bounds: tuple[int, ...]
    blocks = None
    """Number of blocks that each one stands for; None for one each."""

    def counts(self, interval: int) -> Int64[np.ndarray, " B"]:
        """Number of entries of each block that the rows of an own interval are summed from."""
        first, last = self.rows.offsets[[self.bounds[interval], self.bounds[interval + 1]]]
        entries = self.rows.neighbours[first:last]
        own, first_received = len(self.starts) - 1, int(self.starts[-1])
        blocks = np.searchsorted(self.starts, entries, side="right") - 1
        received = entries >= first_received
        blocks[received] = own + entries[received] - first_received
        return np.bincount(blocks, minlength=own + self.size - first_received)

    def stand_for(self, ghosts: np.ndarray) -> int:
        """Number of rows to send for these ghosts."""
        return len(ghosts)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class MergeSummary(Sums):
    """Sums of a shard described by statistics: a sample of its ghosts, each of which stands for several.

    Ghosts that have the same owner and contributors are due, sent and received together, so they are as one.

    Attributes:
        ghosts: int64 `[G]`, number of ghosts that each one of the sample stands for.
        entries: int64 `[k, B]`, number of entries of each block that the rows of each own interval are summed from.
    """

    ghosts: np.ndarray
    entries: np.ndarray

    def counts(self, interval: int) -> Int64[np.ndarray, " B"]:
        """See `Merge`."""
        found: np.ndarray = self.entries[interval]
        return found

    def stand_for(self, ghosts: np.ndarray) -> int:
        """See `Merge`."""
        return int(self.ghosts[ghosts].sum())

    @property
    def blocks(self) -> Int64[np.ndarray, " B"]:
        """See `Merge`: a received row stands for as many as are summed from it, since one interval reads it."""
        own = len(self.starts) - 1
        return np.concatenate([np.ones(own, np.int64), self.entries[:, own:].sum(axis=0)])


AnyMerge = Merge | MergeSummary
Direction = Literal["in", "out"]
DIRECTIONS: tuple[Direction, ...] = ("in", "out")
RowsByPeer = tuple[tuple[int, np.ndarray], ...]
Sends = tuple[RowsByPeer, ...]


@dataclasses.dataclass(eq=False, kw_only=True)
class Part:
    """The rows and edges of a shard, or their numbers. Arrays are shared and read-only.

    Attributes:
        server: s.
        rows: First row of the laid-out graph that it owns, and the row after its last.
        edges: Id of its first in-edge in the laid-out graph, and the id after its last.
        bounds: Its intervals in local rows, 0 … n; k + 1 numbers.
        edge_bounds: Their in-edges in local edges; k + 1 numbers.
        incoming: Its in-edges by target, n rows; neighbours 0 … n+G_in-1. Entry k is local edge k.
        outgoing: Its out-edges by source, n rows; neighbours 0 … n+G_out-1.
        ghosts: By direction, their rows in the laid-out graph, int64 `[G]`, ascending.
        ghost_bounds: By direction, int64 `[K+1]`: the ghosts that belong to interval k, of all servers' intervals, are
            `ghosts[ghost_bounds[k]:ghost_bounds[k+1]]`.
        sends: By direction and own interval, `((peer, rows), …)`, peers ascending: the local rows of that interval,
            int64, ascending, that the peer has as ghosts of that direction.
    """

    server: int
    rows: tuple[int, int]
    edges: tuple[int, int]
    bounds: tuple[int, ...]
    edge_bounds: tuple[int, ...]
    incoming: Adjacency
    outgoing: Adjacency
    ghosts: dict[Direction, np.ndarray]
    ghost_bounds: dict[Direction, np.ndarray]
    sends: dict[Direction, Sends]

    def __post_init__(self) -> None:
        self.first, self.last = self.rows
        self.first_edge, self.last_edge = self.edges
        self.num_rows, self.num_intervals = self.last - self.first, len(self.bounds) - 1


@final
@dataclasses.dataclass(eq=False, kw_only=True)
class Shard(Part):
    """The part of a laid-out graph on one server; made by `cutting`.

    Attributes:
        pushes: `((peer, rows), …)`, peers ascending: the local rows, int64, that a peer pushes partial sums for.
    """

    pushes: RowsByPeer

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbered: dict[int, tuple[np.ndarray, Adjacency]] = {}
        self._transposed: dict[int, Adjacency] = {}

    def unique_sources(self, interval: int) -> Int32[np.ndarray, " U"]:
        """The sources of an interval's in-edges, once each: local ids 0 … n+G_in-1, ascending, int32 `[U]`."""
        return self._interval(interval)[0]

    def compact(self, interval: int) -> Adjacency:
        """The in-edges of an interval by target: n_I rows, neighbours are places in `unique_sources`."""
        return self._interval(interval)[1]

    def transposed(self, interval: int) -> Adjacency:
        """The in-edges of an interval by source: a row for each of `unique_sources`.

        Neighbours are rows of the interval, 0 … n_I-1, and `edges` its in-edges, 0 … e_I-1, both ascending inside a row.
        """
        if interval not in self._transposed:
            sources, rows = self._interval(interval)
            self._transposed[interval] = Adjacency(*transpose(rows.offsets, rows.neighbours, len(sources)))
        return self._transposed[interval]

    def block_counts(self, direction: Direction, interval: int) -> Int64[np.ndarray, " B"]:
        """Number of different rows of each block that an interval reads by its edges of this direction.

        Blocks are the server's own intervals, then the ghosts that belong to an interval each, of intervals that have some.
        """
        if direction == "in":
            read = self.unique_sources(interval)
        else:
            first, last = (int(self.outgoing.offsets[row]) for row in self.bounds[interval : interval + 2])
            read = np.unique(self.outgoing.neighbours[first:last])
        ghosts = self.ghost_bounds[direction]
        starts = np.concatenate([self.bounds[:-1], self.num_rows + ghosts[:-1][np.diff(ghosts) > 0]])
        return np.bincount(np.searchsorted(starts, read, side="right") - 1, minlength=len(starts))

    def merge(self) -> Merge:
        """The way from partial sums to sums per source."""
        return self._merge

    def _interval(self, interval: int) -> tuple[Int32[np.ndarray, " U"], Adjacency]:
        """The results of `unique_sources` and `compact`."""
        if interval not in self._numbered:
            bounds = self.incoming.offsets[self.bounds[interval] : self.bounds[interval + 1] + 1]
            neighbours = self.incoming.neighbours[bounds[0] : bounds[-1]]
            sources, places = ranked(neighbours, self.num_rows + len(self.ghosts["in"]))
            self._numbered[interval] = sources.astype(np.int32), Adjacency(bounds - bounds[0], places)
        return self._numbered[interval]

    @cached_property
    def _merge(self) -> Merge:
        parts = [self.unique_sources(interval) for interval in range(self.num_intervals)]
        starts = np.cumsum([0, *map(len, parts)])
        parts += [rows.astype(np.int32) for _, rows in self.pushes]
        ends = np.cumsum([0, *map(len, parts)])[self.num_intervals :].tolist()
        peers = [peer for peer, _ in self.pushes]
        ids = np.concatenate(parts)
        num_rows = self.num_rows + len(self.ghosts["in"])
        offsets, _, places = transpose(np.array([0, len(ids)], np.int64), ids, num_rows)
        assert places is not None  # a laid-out graph has edge ids, and there are no more sums than edges
        of_ghosts = offsets[self.num_rows :]
        owners = np.searchsorted(starts, places[of_ghosts[0] :], side="right") - 1
        return Merge(
            starts=starts,
            received=tuple(zip(peers, ends[:-1], ends[1:], strict=True)),
            size=len(ids),
            ghost_bounds=self.ghost_bounds["in"],
            contributors=Adjacency(of_ghosts - of_ghosts[0], owners.astype(np.int32)),
            rows=Adjacency(offsets, places),
            bounds=self.bounds,
        )


@final
@dataclasses.dataclass(eq=False, kw_only=True)
class ShardSummary(Part):
    """Numbers of rows and edges of a shard; neighbours, ghosts and rows to send are abstract.

    Attributes:
        reads: By direction and own interval, the numbers of `block_counts`: int64 `[k, B]`.
        sources: Returns the offsets of the edges of each source of an interval, int64 `[U+1]`.
        merge: As `Shard.merge`; returns the same each time.
    """

    reads: Mapping[Direction, np.ndarray]
    sources: Callable[[int], np.ndarray]
    merge: Callable[[], AnyMerge]

    def unique_sources(self, interval: int) -> np.ndarray:
        """See `Shard`."""
        return abstract_array((int(self.reads["in"][interval].sum()),), np.int32)

    def compact(self, interval: int) -> Adjacency:
        """See `Shard`."""
        bounds = self.incoming.offsets[self.bounds[interval] : self.bounds[interval + 1] + 1]
        return abstract_rows(bounds - bounds[0])

    def transposed(self, interval: int) -> Adjacency:
        """See `Shard`."""
        return abstract_rows(self.sources(interval))

    def block_counts(self, direction: Direction, interval: int) -> np.ndarray:
        """See `Shard`."""
        found: np.ndarray = self.reads[direction][interval]
        return found


AnyShard = Shard | ShardSummary


def abstract_rows(offsets: np.ndarray) -> Adjacency:
    """Compressed rows of which only the lengths are known."""
    return Adjacency(offsets, abstract_array((int(offsets[-1]),), np.int32))
