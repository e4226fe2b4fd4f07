"""How the partial sums of a server's intervals, and those it receives, become sums per source."""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np
from jaxtyping import Int64

from dorylax.graph.compressed import Adjacency


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Who contributes to which sums, and in which order they are sent and received.

    Partial sums lie in one array of `size` rows: those of interval i at `starts[i]:starts[i+1]`, in the order of
    `Shard.unique_sources(i)`, then those of each peer. A *block* of it has an epoch of its own: the rows of each own
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
        rows: Entries of the array that make up each local row, `[n + G_in]` rows, int32: for own rows those of own
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
    """Those of a shard that nobody has, by a sample of its ghosts, each of which stands for several.

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
