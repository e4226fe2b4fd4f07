"""The part of a laid-out graph that one server holds: its rows in local numbering, its ghosts, and the rows it sends.

How it is cut out of a graph is in `cutting`. The laid-out graph is `graph.reorder(layout.order)`: server s owns rows
`layout.server_bounds[s]:layout.server_bounds[s+1]`. Locally these are rows 0 … n-1; *ghosts*, vertices of other servers at
the other end of its edges, follow them as rows n … n+G-1, ascending. Ghosts over in-edges and over out-edges are numbered
apart (in a symmetric graph they are the same).

Rows come to a server in two ways. *Pulled*: it reads rows of its ghosts, which their owners send (`Shard.sends`). *Pushed*:
every interval makes partial sums for the sources of its in-edges (`Shard.transposed`); those for ghosts are added up over
the intervals of the server and sent to the owner, which adds them up (`Merge`) in a fixed order.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import Adjacency
from dorylax.graph.transpose import transpose


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Contributors of partial sums, and the order in which sums are sent and received.

    Partial sums lie in one array of `size` rows: those of interval i at `starts[i]:starts[i+1]`, in the order of
    `Shard.unique_sources(i)`, then those of each peer. A *block* of it has its own epoch: the rows of each own
    interval, then each row that is received.

    Attributes:
        starts: int64 `[k+1]`.
        received: `(peer, first, last)`: the peer's sums lie at `first:last`, in the order of its ghosts of this server's
            rows; peers ascending, only those that have some.
        size: rows of the array.
        ghost_bounds: int64 `[K+1]`, the ghosts that belong to each interval of the whole graph; see `Shard`.
        contributors: own intervals that have an edge from each ghost, ascending, `[G_in]` rows.
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
        rows: Entries of the array that are summed into each local row, `[n + G_in]` rows, int32: for own rows those of own
            intervals in order, then those of peers in order; for ghosts those of own intervals alone, to be sent.
        bounds: The server's intervals in local rows.
    """

    rows: Adjacency
    bounds: tuple[int, ...]

    def counts(self, interval: int) -> Int64[np.ndarray, " B"]:
        """How many entries of each block the rows of an own interval are summed from."""
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

    @property
    def blocks(self) -> None:
        """How many blocks each one stands for: itself."""
        return


@final
@dataclasses.dataclass(frozen=True, eq=False)
class MergeSummary(Sums):
    """Sums of a shard described by statistics: a sample of its ghosts, each of which stands for several.

    Ghosts that have the same owner and contributors are due, sent and received together, so they are as one.

    Attributes:
        ghosts: int64 `[G]`, how many each one of the sample stands for.
        entries: int64 `[k, B]`, how many entries of each block the rows of each own interval are summed from.
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
Sends = tuple[tuple[tuple[int, np.ndarray], ...], ...]


@final
class Shard:
    """The part of a laid-out graph on one server; made by `cutting`. Arrays are shared: they are not to be written to.

    Attributes:
        server: s.
        first, last: rows of the laid-out graph that it owns; n = last - first.
        first_edge, last_edge: ids of its in-edges in the laid-out graph.
        bounds: its intervals in local rows, 0 … n; k + 1 numbers.
        edge_bounds: their in-edges in local edges; k + 1 numbers.
        incoming: its in-edges by target, n rows; neighbours 0 … n+G_in-1. Entry k is local edge k.
        outgoing: its out-edges by source, n rows; neighbours 0 … n+G_out-1.
        ghosts: by direction, their rows in the laid-out graph, int64 `[G]`, ascending.
        ghost_bounds: by direction, int64 `[K+1]`: the ghosts that belong to interval k, of all servers' intervals, are
            `ghosts[ghost_bounds[k]:ghost_bounds[k+1]]`.
        sends: by direction and own interval, `((peer, rows), …)`, peers ascending: the local rows of that interval, int64,
            ascending, that the peer has as ghosts of that direction.
        pushes: `((peer, rows), …)`, peers ascending: the local rows, int64, that a peer pushes partial sums for.
    """

    def __init__(
        self,
        *,
        server: int,
        rows: tuple[int, int],
        edges: tuple[int, int],
        bounds: tuple[int, ...],
        edge_bounds: tuple[int, ...],
        incoming: Adjacency,
        outgoing: Adjacency,
        ghosts: dict[Direction, np.ndarray],
        ghost_bounds: dict[Direction, np.ndarray],
        sends: dict[Direction, Sends],
        pushes: tuple[tuple[int, np.ndarray], ...],
    ) -> None:
        self.server = server
        self.first, self.last = rows
        self.first_edge, self.last_edge = edges
        self.bounds = bounds
        self.edge_bounds = edge_bounds
        self.incoming = incoming
        self.outgoing = outgoing
        self.ghosts = ghosts
        self.ghost_bounds = ghost_bounds
        self.sends = sends
        self.pushes = pushes
        self._sources: dict[int, np.ndarray] = {}
        self._compact: dict[int, Adjacency] = {}
        self._transposed: dict[int, Adjacency] = {}
        self._merge: Merge | None = None

    @property
    def num_rows(self) -> int:
        """n, the rows that the server owns."""
        return self.last - self.first

    @property
    def num_intervals(self) -> int:
        """k, the intervals of this server."""
        return len(self.bounds) - 1

    def unique_sources(self, interval: int) -> Int32[np.ndarray, " U"]:
        """The sources of an interval's in-edges, once each: local ids 0 … n+G_in-1, ascending, int32 `[U]`."""
        self.compact(interval)
        return self._sources[interval]

    def compact(self, interval: int) -> Adjacency:
        """The in-edges of an interval by target: n_I rows, neighbours are places in `unique_sources`."""
        if interval not in self._compact:
            bounds = self.incoming.offsets[self.bounds[interval] : self.bounds[interval + 1] + 1]
            neighbours = self.incoming.neighbours[bounds[0] : bounds[-1]]
            sources, places = _numbered(neighbours, self.num_rows + len(self.ghosts["in"]))
            self._sources[interval] = sources
            self._compact[interval] = Adjacency(bounds - bounds[0], places)
        return self._compact[interval]

    def transposed(self, interval: int) -> Adjacency:
        """The in-edges of an interval by source: a row for each of `unique_sources`.

        Neighbours are rows of the interval, 0 … n_I-1, and `edges` its in-edges, 0 … e_I-1, both ascending inside a row.
        """
        if interval not in self._transposed:
            rows = self.compact(interval)
            sources = len(self.unique_sources(interval))
            self._transposed[interval] = Adjacency(*transpose(rows.offsets, rows.neighbours, sources))
        return self._transposed[interval]

    def block_counts(self, direction: Direction, interval: int) -> Int64[np.ndarray, " B"]:
        """How many different rows of each block an interval reads by its edges of this direction.

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
        """How partial sums become sums per source."""
        if self._merge is None:
            self._merge = self._make_merge()
        return self._merge

    def _make_merge(self) -> Merge:
        parts = [self.unique_sources(interval) for interval in range(self.num_intervals)]
        starts = _offsets([len(part) for part in parts])
        parts += [rows.astype(np.int32) for _, rows in self.pushes]
        ends = _offsets([len(part) for part in parts])
        received = tuple(
            (peer, int(ends[self.num_intervals + i]), int(ends[self.num_intervals + i + 1]))
            for i, (peer, _) in enumerate(self.pushes)
        )
        ids = np.concatenate(parts)
        num_rows = self.num_rows + len(self.ghosts["in"])
        offsets, _, places = transpose(np.array([0, len(ids)], np.int64), ids, num_rows)
        assert places is not None  # a laid-out graph has edge ids, and there are no more sums than edges
        of_ghosts = offsets[self.num_rows :]
        owners = np.searchsorted(starts, places[of_ghosts[0] :], side="right") - 1
        return Merge(
            starts=starts,
            received=received,
            size=len(ids),
            ghost_bounds=self.ghost_bounds["in"],
            contributors=Adjacency(of_ghosts - of_ghosts[0], owners.astype(np.int32)),
            rows=Adjacency(offsets, places),
            bounds=self.bounds,
        )


def _numbered(values: Int32[np.ndarray, " N"], size: int) -> tuple[Int32[np.ndarray, " U"], Int32[np.ndarray, " N"]]:
    """The different values, ascending, and the place of each value among them; values are in 0 … size-1."""
    seen = np.zeros(size, bool)
    seen[values] = True
    different = np.flatnonzero(seen).astype(np.int32)
    place = np.empty(size, np.int32)
    place[different] = np.arange(len(different), dtype=np.int32)
    return different, place[values]


def _offsets(lengths: list[int]) -> Int64[np.ndarray, " R1"]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
