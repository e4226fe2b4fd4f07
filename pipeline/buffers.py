"""The mutable buffers of a graph server: rows that other intervals read through edges.

`RowBuffer` holds the newest rows of one published value: first the server's own vertices, then its ghosts. `MergeBuffer`
holds partial sums per source, pushed by the server's intervals or received from peers. Both stamp every block with its
epoch, and guard their writes, so that reading threads never see a half-written row. `PartsBuffer` holds the contribution
of each interval to sums over all rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, final

import numpy as np

from dorylax.abstract_array import abstract_array, is_abstract, taken
from dorylax.graph.shard import AnyShard, Merge
from dorylax.ops import row_operators
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.asynchrony import BlocksRead, ExponentialMean
from dorylax.pipeline.stamps import NEVER, Guard, Reads, Stamps, reads

Make = Callable[[Sequence[int], Any], np.ndarray]
"""Creates an array of a given shape and dtype."""


@final
class RowBuffer:
    """Rows of one published value.

    Args:
        shard: Shard of the server.
        direction: Kind of ghosts stored after the server's own rows.
        shape: Shape of one row.
        dtype: Data type of the rows.
        make: Creates the array.
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
        self._abstract = is_abstract(self.rows)
        self.stamps = Stamps(len(self._bounds))
        self.times = np.zeros(len(self._bounds), np.int64)  # rows received since they had to be exact
        self.guard = Guard()

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First row (inclusive) and last row (exclusive) of each block: own intervals, then ghosts by their interval."""
        return self._bounds

    async def publish(self, interval: int, rows: Any, epoch: int) -> None:
        """Write the rows of an interval of this server.

        Args:
            interval: Number of the interval on the server.
            rows: All rows of the interval.
            epoch: Epoch of the rows.
        """
        await self._write(interval, rows, epoch, None)

    def own_epochs(self) -> list[int]:
        """Return the epoch of the rows of each interval of this server."""
        epochs: list[int] = self.stamps.epochs[: self._own].tolist()
        return epochs

    def receive(
        self, interval: int, rows: Any, epoch: int, reception: ExponentialMean | None = None
    ) -> Coroutine[Any, Any, None]:
        """Write the ghosts of an interval of a peer, if they are newer than the stored rows.

        Args:
            interval: Number of the interval in the whole graph.
            rows: All rows of the interval that are ghosts here, in order.
            epoch: Epoch of the rows.
            reception: Weights of the new rows relative to the stored ones; None to replace them.
        """
        return self._write(self._places[interval], rows, epoch, reception)

    async def _write(self, block: int, rows: Any, epoch: int, reception: ExponentialMean | None) -> None:
        if self._abstract:  # abstract rows have no data to guard
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
        """Free the rows after their last reader. All rows have arrived; repeated messages are dropped."""
        self.rows = np.empty((0, *self.rows.shape[1:]), self.rows.dtype)

    def reads(self, counts: np.ndarray) -> Reads:
        """Summarize a read of `counts[b]` rows of each block b; call with the guard held for reading."""
        return reads(counts, self.stamps.epochs)


@final
class MergeBuffer:
    """Sums per source over in-edges of several intervals on several servers.

    Args:
        shard: Shard of the server.
        shape: Shape of one row.
        dtype: Data type of the rows.
        make: Creates the array.
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
        # Two views of the same memory: one block per interval of the server, and one per received row.
        self.own_epochs, self.received_epochs = np.split(self.stamps.epochs, [self._own])
        self.times = np.zeros(len(self.received_epochs), np.int64)  # rows received since they had to be exact
        contributors = self._merge.contributors
        self._shipped = np.full(contributors.num_rows, NEVER, np.int64)
        ghosts = np.repeat(np.arange(len(self._shipped)), np.diff(contributors.offsets))
        self._touched = [ghosts[contributors.neighbours == interval] for interval in range(self._own)]
        self.guard = Guard()

    async def publish(self, interval: int, rows: Any, epoch: int) -> None:
        """Write the partial sums of an interval of this server, in order of its sources."""
        first, last = int(self._merge.starts[interval]), int(self._merge.starts[interval + 1])

        def write() -> None:
            blend(self.rows, slice(first, last), rows, None)
            self.own_epochs[interval] = epoch

        await settled(self.guard.write(write))
        self.stamps.changed()

    async def receive(
        self,
        peer: int,
        places: np.ndarray,
        epochs: np.ndarray,
        rows: np.ndarray,
        reception: ExponentialMean | None = None,
    ) -> None:
        """Write the sums of a peer, except rows that are not newer than the stored ones.

        Args:
            peer: Index of the sending server.
            places: int64 `[M]`, positions among the rows that this peer sends.
            epochs: int64 `[M]`, epoch of the oldest contribution to each row.
            rows: Sums, `[M, …]`.
            reception: Weights of the new rows relative to the stored ones; None to replace them.
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
        """Return the ghosts whose sums became newer with an interval's last write, and mark them as sent.

        Each of these sums must be sent to the ghost's owner, once per epoch.

        Returns:
            Numbers of the ghosts, int64 `[M]` ascending, and the epoch of the oldest contribution to each, `[M]`.
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
        """Return the sums for these ghosts over this server's intervals in order, `[M, …]`; call with the guard held."""
        if is_abstract(self.rows):
            return abstract_array((len(ghosts), *self.rows.shape[1:]), self.rows.dtype)
        assert isinstance(self._merge, Merge)
        rows = self._merge.rows
        at = self._num_rows + ghosts
        counts = np.diff(rows.offsets)[at]
        entries = rows.neighbours[_ranges(rows.offsets[at], counts)]
        sums: np.ndarray = np.add.reduceat(self.rows[entries], np.cumsum(counts) - counts, axis=0)
        return sums

    @property
    def shipped(self) -> np.ndarray:
        """Epoch of the last sum sent for each ghost, int64 `[G]`."""
        return self._shipped

    def reads(self, interval: int) -> Reads:
        """Summarize the read of the sums for an interval of this server; call with the guard held for reading."""
        return reads(self._merge.counts(interval), self.stamps.epochs)

    def blocks_read(self, interval: int) -> BlocksRead:
        """Return the blocks that contribute to the sums for an interval of this server."""
        counts = self._merge.counts(interval)
        return BlocksRead(counts, interval, np.arange(len(counts)) < self._own, self._merge.blocks)

    def entries(self, interval: int) -> int:
        """Return the number of rows that contribute to the sums for an interval of this server."""
        return int(self._merge.counts(interval).sum())

    def own_sums(self, interval: int, out: np.ndarray) -> None:
        """Compute the sums for an interval of this server; call with the guard held for reading.

        Args:
            interval: Number of the interval on the server.
            out: Output with one row per vertex of the interval; an abstract array stays unchanged.
        """
        if is_abstract(out):
            return
        assert isinstance(self._merge, Merge)
        rows, (first, last) = self._merge.rows, self._merge.bounds[interval : interval + 2]
        mine = RowRange(rows.offsets[first : last + 1], rows.neighbours, None, first)
        row_operators.run("dorylax_gather_sum", {"direction": "in"}, [self.rows], mine, out=[out])


@final
class PartsBuffer:
    """Parts of sums over all rows, one per interval of the whole graph. Used only on the event loop.

    Args:
        num_intervals: Number of intervals K.
        sums: Shape and dtype of each sum.
    """

    def __init__(self, num_intervals: int, sums: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self.rows = tuple(np.zeros((num_intervals, *shape), dtype) for shape, dtype in sums)
        self.stamps = Stamps(num_intervals)

    def write(self, intervals: np.ndarray, epoch: int, rows: Sequence[np.ndarray]) -> None:
        """Write the parts of some intervals, except those older than the stored ones.

        Args:
            intervals: int64 `[M]`, numbers of the intervals in the whole graph.
            epoch: Epoch of the parts.
            rows: Parts of each sum, `[M, …]`.
        """
        newer = epoch >= self.stamps.epochs[intervals]  # a message that was sent again may come late
        for mine, given in zip(self.rows, rows, strict=True):
            mine[intervals[newer]] = given[newer]
        self.stamps.epochs[intervals[newer]] = epoch
        self.stamps.changed(len(intervals))

    def read(self, intervals: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return copies of the parts of some intervals, in the format of `write`."""
        return tuple(rows[intervals] for rows in self.rows)

    def totals(self) -> list[np.ndarray]:
        """Return the sums, with parts added in the order of intervals: `((p0 + p1) + p2) + …`."""
        found = []
        for rows in self.rows:
            total = np.array(rows[0])  # an array even for scalars, for `out`
            for part in rows[1:]:
                np.add(total, part, out=total)
            found.append(total)
        return found

    def reads(self, interval: int) -> Reads:
        """Summarize the read of `totals` by an interval, without the part of the interval itself."""
        counts = np.ones(len(self.stamps.epochs), np.int64)
        counts[interval] = 0
        return reads(counts, self.stamps.epochs)

    def blocks_read(self, interval: int, server: range) -> BlocksRead:
        """Return the blocks that `totals` reads for an interval; `server` contains the intervals of its server."""
        numbers = np.arange(len(self.stamps.epochs))
        return BlocksRead(np.ones_like(numbers), interval, (server.start <= numbers) & (numbers < server.stop))


def shares(times: np.ndarray, blocks: Any, reception: ExponentialMean | None) -> np.ndarray | None:
    """Return the weights of received rows (`ExponentialMean.weights`), or None to replace the stored rows.

    Args:
        times: int64 `[B]`, number of receptions of each block since exact rows were required; updated in place.
        blocks: Indices of the received blocks.
        reception: Policy for the weights; None if exact rows are required.
    """
    times[blocks] = 1 if reception is None else times[blocks] + 1
    return None if reception is None else reception.weights(times[blocks])


def blend(held: np.ndarray, rows: Any, new: Any, weights: np.ndarray | None) -> None:
    """Write received rows over the stored rows.

    Args:
        held: Stored rows, `[N, …]`, updated in place; an abstract array stays unchanged.
        rows: Indices of the rows: a block, or one row of each of several blocks.
        new: Received rows.
        weights: Weights of the received rows, `[1]` or `[M]`; None to replace the stored rows, as always for integers.
    """
    if is_abstract(held):
        return
    if weights is not None and np.issubdtype(held.dtype, np.inexact):
        weights = weights.reshape(-1, *[1] * (held.ndim - 1))
        new = np.where(weights == 1, new, held[rows] + weights.astype(held.dtype) * (new - held[rows]))
    held[rows] = new


async def settled(write: Future[None] | None) -> None:
    """Wait for a write; a completed write does not yield to the event loop."""
    if write is not None:
        await asyncio.wrap_future(write)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the concatenated ranges `start, …, start + count - 1`."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)
