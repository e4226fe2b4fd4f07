"""The mutable buffers of a graph server: rows that other intervals read through edges.

`RowBuffer` holds the newest rows of one published value: those of the server's own vertices, then those of its ghosts.
`MergeBuffer` holds partial sums per source, as pushed by the server's intervals and received from peers. Both stamp
every block with the epoch that it is of; writes go through a guard, so that readers on threads see whole rows.
`PartsBuffer` holds what each interval gives to sums over all rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.graph.shard import AnyShard, Merge
from dorylax.hollow import hollow, is_hollow, taken
from dorylax.ops import row_operators
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.asynchrony.base import BlocksRead, Reception
from dorylax.pipeline.guard import Guard
from dorylax.pipeline.stamps import NEVER, Stamps

Make = Callable[[Sequence[int], Any], np.ndarray]
"""Makes an array of a shape and a dtype."""


class Reads(NamedTuple):
    """What an interval has read through edges: how many different rows of which epochs.

    Attributes:
        oldest: the oldest epoch among them.
        rows: how many were of that epoch, of the next one, and so on; empty where nothing was read.
    """

    oldest: int
    rows: tuple[int, ...]


@final
class RowBuffer:
    """Rows of one published value.

    Args:
        shard: whose rows.
        direction: which ghosts lie behind the server's own rows.
        shape: of one row.
        dtype: of the rows.
        make: makes the array, of a shape and a dtype.
    """

    def __init__(
        self, shard: AnyShard, direction: Direction, shape: Sequence[int], dtype: Any, make: Make = np.zeros
    ) -> None:
        self._shard = shard
        self._own = len(shard.bounds) - 1
        ghosts = shard.ghost_bounds[direction]
        num_rows = shard.last - shard.first
        self.rows = make((num_rows + len(shard.ghosts[direction]), *shape), dtype)
        held = np.flatnonzero(np.diff(ghosts))
        self._places = {int(k): self._own + place for place, k in enumerate(held)}
        self._bounds = [
            *zip(shard.bounds[:-1], shard.bounds[1:], strict=True),
            *((num_rows + int(ghosts[k]), num_rows + int(ghosts[k + 1])) for k in held),
        ]
        self._hollow = is_hollow(self.rows)
        self.stamps = Stamps(len(self._bounds))
        self.times = np.zeros(len(self._bounds), np.int64)  # rows received since they had to be exact
        self.guard = Guard()

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First row of each block and the row after its last: own intervals, then ghosts by their interval."""
        return self._bounds

    async def publish(self, interval: int, rows: Any, epoch: int) -> None:
        """Writes the rows of one of the server's own intervals.

        Args:
            interval: its number on the server.
            rows: all of them.
            epoch: which they are of.
        """
        await self._write(interval, rows, epoch, None)

    def own_epochs(self) -> list[int]:
        """Of which epoch the rows of each of the server's own intervals are."""
        epochs: list[int] = self.stamps.epochs[: self._own].tolist()
        return epochs

    def receive(
        self, interval: int, rows: Any, epoch: int, reception: Reception | None = None
    ) -> Coroutine[Any, Any, None]:
        """Writes the ghosts that belong to an interval of a peer; what is not newer than what is there is dropped.

        Args:
            interval: its number in the whole graph.
            rows: all of its rows that are ghosts here, in order.
            epoch: which they are of.
            reception: how far they replace what is there; None: they do.
        """
        return self._write(self._places[interval], rows, epoch, reception)

    async def _write(self, block: int, rows: Any, epoch: int, reception: Reception | None) -> None:
        if self._hollow:  # nobody reads them for longer than a moment
            if epoch > self.stamps.epochs[block]:
                self.stamps.advance(block, epoch)
            return
        first, last = self._bounds[block]

        def write() -> None:
            if epoch > self.stamps.epochs[block]:  # a message that was sent again may come late
                blend(self.rows, slice(first, last), rows, shares(self.times, slice(block, block + 1), reception))
                self.stamps.epochs[block] = epoch

        await settled(self.guard.write(write))
        self.stamps.changed()

    def release(self) -> None:
        """Gives the rows back, which nobody reads any more; all of them have come, and what comes again is dropped."""
        self.rows = np.empty((0, *self.rows.shape[1:]), self.rows.dtype)

    def reads(self, counts: np.ndarray) -> Reads:
        """What reading `counts[b]` rows of each block b in this epoch amounts to; to be called while reading."""
        return reads(counts, self.stamps.epochs)


@final
class MergeBuffer:
    """Sums per source that the in-edges of several intervals, on several servers, contribute to.

    Args:
        shard: of the server.
        shape: of one row.
        dtype: of the rows.
        make: makes the array, of a shape and a dtype.
    """

    def __init__(self, shard: AnyShard, shape: Sequence[int], dtype: Any, make: Make = np.zeros) -> None:
        self._merge = shard.merge()
        self._num_rows = shard.last - shard.first
        self.rows = make((self._merge.size, *shape), dtype)
        self._own = len(shard.bounds) - 1
        first = int(self._merge.starts[-1])
        self._places = {peer: (begin, end) for peer, begin, end in self._merge.received}
        self._first_received = first
        self.stamps = Stamps(self._own + self._merge.size - first)
        # The same memory: a block for each interval of the server, and one for each row received.
        self.own_epochs, self.received_epochs = np.split(self.stamps.epochs, [self._own])
        self.times = np.zeros(len(self.received_epochs), np.int64)  # rows received since they had to be exact
        contributors = self._merge.contributors
        self._shipped = np.full(contributors.num_rows, NEVER, np.int64)
        ghosts = np.repeat(np.arange(len(self._shipped)), np.diff(contributors.offsets))
        self._touched = [ghosts[contributors.neighbours == interval] for interval in range(self._own)]
        self.guard = Guard()

    async def publish(self, interval: int, rows: Any, epoch: int) -> None:
        """Writes the partial sums of one of the server's own intervals, in order of its sources."""
        first, last = int(self._merge.starts[interval]), int(self._merge.starts[interval + 1])

        def write() -> None:
            blend(self.rows, slice(first, last), rows, None)
            self.own_epochs[interval] = epoch

        await settled(self.guard.write(write))
        self.stamps.changed()

    async def receive(
        self, peer: int, places: np.ndarray, epochs: np.ndarray, rows: np.ndarray, reception: Reception | None = None
    ) -> None:
        """Writes sums that a peer has computed; each row that is not newer than what is there is dropped.

        Args:
            peer: the server.
            places: int64 `[M]`, which of the rows that this peer sends.
            epochs: int64 `[M]`, the oldest contribution to each.
            rows: `[M, …]`.
            reception: how far they replace what is there; None: they do.
        """
        begin, _ = self._places[peer]
        where = begin + places

        def write() -> None:
            blocks = where - self._first_received
            newer = epochs > self.received_epochs[blocks]
            weights = shares(self.times, blocks[newer], reception)
            blend(self.rows, where[newer], taken(rows, np.flatnonzero(newer)), weights)
            self.received_epochs[blocks[newer]] = epochs[newer]

        await settled(self.guard.write(write))
        self.stamps.changed(len(places))

    def due(self, interval: int) -> tuple[np.ndarray, np.ndarray]:
        """Ghosts of which an interval just completed a newer sum: to be sent to their owners, once per epoch.

        Returns:
            Numbers of the ghosts, int64 `[M]` ascending, and the epoch of the oldest contribution to each, `[M]`; they
            count as sent from now on.
        """
        contributors = self._merge.contributors
        mine = self._touched[interval]
        if not mine.size:
            return mine, mine
        counts = np.diff(contributors.offsets)[mine]
        entries = _ranges(contributors.offsets[mine], counts)
        starts = np.cumsum(counts) - counts
        oldest = np.minimum.reduceat(self.own_epochs[contributors.neighbours[entries]], starts)
        newer = oldest > self._shipped[mine]
        chosen = mine[newer]
        self._shipped[chosen] = oldest[newer]
        return chosen, oldest[newer]

    def ghost_sums(self, ghosts: np.ndarray) -> np.ndarray:
        """The sums for these ghosts, `[M, …]`, of the server's own intervals in order; to be called while reading."""
        if is_hollow(self.rows):
            return hollow((len(ghosts), *self.rows.shape[1:]), self.rows.dtype)
        assert isinstance(self._merge, Merge)
        rows = self._merge.rows
        at = self._num_rows + ghosts
        counts = np.diff(rows.offsets)[at]
        entries = rows.neighbours[_ranges(rows.offsets[at], counts)]
        sums: np.ndarray = np.add.reduceat(self.rows[entries], np.cumsum(counts) - counts, axis=0)
        return sums

    @property
    def shipped(self) -> np.ndarray:
        """The epoch of what was last sent of each ghost, int64 `[G]`."""
        return self._shipped

    def reads(self, interval: int) -> Reads:
        """What the sums for one of the server's own intervals amount to; to be called while reading."""
        return reads(self._merge.counts(interval), self.stamps.epochs)

    def blocks_read(self, interval: int) -> BlocksRead:
        """What the sums for one of the server's own intervals are made of."""
        counts = self._merge.counts(interval)
        return BlocksRead(counts, interval, np.arange(len(counts)) < self._own, self._merge.blocks)

    def entries(self, interval: int) -> int:
        """How many rows the sums for one of the server's own intervals are made of."""
        return int(self._merge.counts(interval).sum())

    def own_sums(self, interval: int, out: np.ndarray) -> None:
        """Adds up what the sums for one of the server's own intervals are made of; to be called while reading.

        Args:
            interval: its number on the server.
            out: a row for each of its vertices; nothing happens if it is hollow.
        """
        if is_hollow(out):
            return
        assert isinstance(self._merge, Merge)
        rows, (first, last) = self._merge.rows, self._merge.bounds[interval : interval + 2]
        mine = RowRange(rows.offsets[first : last + 1], rows.neighbours, None, first)
        row_operators.run("dorylax_gather_sum", {"direction": "in"}, [self.rows], mine, out=[out])


@final
class PartsBuffer:
    """The parts of sums over all rows, one of each interval of the whole graph. Only the event loop touches it.

    Args:
        num_intervals: K.
        sums: shape and dtype of each sum.
    """

    def __init__(self, num_intervals: int, sums: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self.rows = tuple(np.zeros((num_intervals, *shape), dtype) for shape, dtype in sums)
        self.stamps = Stamps(num_intervals)

    def write(self, intervals: np.ndarray, epoch: int, rows: Sequence[np.ndarray]) -> None:
        """Writes the parts of some intervals; those that are older than what is there are dropped.

        Args:
            intervals: int64 `[M]`, their numbers in the whole graph.
            epoch: which the parts are of.
            rows: of each sum, `[M, …]`.
        """
        newer = epoch >= self.stamps.epochs[intervals]  # a message that was sent again may come late
        for mine, given in zip(self.rows, rows, strict=True):
            mine[intervals[newer]] = given[newer]
        self.stamps.epochs[intervals[newer]] = epoch
        self.stamps.changed(len(intervals))

    def read(self, intervals: np.ndarray) -> tuple[np.ndarray, ...]:
        """Copies of the parts of some intervals, as `write` takes them."""
        return tuple(rows[intervals] for rows in self.rows)

    def totals(self) -> list[np.ndarray]:
        """The sums, parts added in the order of intervals: `((p0 + p1) + p2) + …`."""
        found = []
        for rows in self.rows:
            total = np.array(rows[0])  # a number, too, is to be an array
            for part in rows[1:]:
                np.add(total, part, out=total)
            found.append(total)
        return found

    def reads(self, interval: int) -> Reads:
        """What `totals` amounts to for an interval: its own part does not count."""
        counts = np.ones(len(self.stamps.epochs), np.int64)
        counts[interval] = 0
        return reads(counts, self.stamps.epochs)

    def blocks_read(self, interval: int, server: range) -> BlocksRead:
        """What `totals` is made of for an interval, where these are those of its server."""
        numbers = np.arange(len(self.stamps.epochs))
        return BlocksRead(np.ones_like(numbers), interval, (server.start <= numbers) & (numbers < server.stop))


def shares(times: np.ndarray, blocks: Any, reception: Reception | None) -> np.ndarray | None:
    """How far rows that have come replace those that are held: `Reception.weights`, or None if they do.

    Args:
        times: int64 `[B]`, how often each block has come since it had to be exact; counted on.
        blocks: which blocks have come.
        reception: what decides; None where they have to be exact.
    """
    times[blocks] = 1 if reception is None else times[blocks] + 1
    return None if reception is None else reception.weights(times[blocks])


def blend(held: np.ndarray, rows: Any, new: Any, weights: np.ndarray | None) -> None:
    """Writes rows that have come over those that are held.

    Args:
        held: `[N, …]`, written to; nothing happens if it is hollow.
        rows: which of them: a block, or a row of each of several blocks.
        new: what has come.
        weights: how far it replaces the old, `[1]` or `[M]`; None: it does, as whole numbers always do.
    """
    if is_hollow(held):
        return
    if weights is not None and np.issubdtype(held.dtype, np.inexact):
        weights = weights.reshape(-1, *[1] * (held.ndim - 1))
        new = np.where(weights == 1, new, held[rows] + weights.astype(held.dtype) * (new - held[rows]))
    held[rows] = new


def reads(counts: np.ndarray, epochs: np.ndarray) -> Reads:
    """Sums up reading `counts[b]` rows of epoch `epochs[b]` for every b."""
    some = counts > 0
    if not some.any():
        return Reads(0, ())
    oldest = int(epochs[some].min())
    # As float64, which counts exactly up to 2⁵³.
    totals = np.bincount(epochs[some] - oldest, weights=counts[some])
    return Reads(oldest, tuple(int(total) for total in totals))


async def settled(write: Future[None] | None) -> None:
    """Waits for a write; without a turn of the event loop where it is done."""
    if write is not None:
        await asyncio.wrap_future(write)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`start, start + 1, …` of each range, one after the other."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)
