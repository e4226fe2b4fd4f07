"""The staleness ledger: the current epoch of each interval, and the epochs that may start (dorylus.md §4, BPAC).

`Ledger` only decides. `progress` broadcasts its decisions to the hosts; `Gate` blocks intervals on them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, final

from dorylax.errors import RunError
from dorylax.pipeline.messages import Started


class Allowance(NamedTuple):
    """The ledger's decisions for a host: the newest epoch that may start, and the age limit of rows.

    Attributes:
        horizon: Newest epoch that may start now.
        oldest_rows: First epoch with rows: the run's first epoch, or the previous one if buffers were restored.
        staleness: Staleness bound S.
        fills_ghosts: Synchronous first epoch of a run without restored buffers; None with restored buffers.
        synchronous_from: Epoch from which all epochs are synchronous; None if not decided.
    """

    horizon: int
    oldest_rows: int
    staleness: int
    fills_ghosts: int | None
    synchronous_from: int | None

    def synchronous(self, epoch: int) -> bool:
        """Return whether an epoch is synchronous."""
        if self.synchronous_from is not None and epoch >= self.synchronous_from:
            return True
        return epoch == self.fills_ghosts

    def required_row_epoch(self, epoch: int) -> int:
        """Return the oldest epoch of rows that an interval may read in an epoch.

        For a synchronous epoch this is the epoch itself. Otherwise it is `epoch - S - 1`, or the first epoch with rows if
        that is later. Results of the steps before training have epoch -1.
        """
        if epoch < 0:
            return -1
        return epoch if self.synchronous(epoch) else max(self.oldest_rows, epoch - self.staleness - 1)


@final
class Ledger:
    """Tracks the epochs of all intervals and bounds the distance between them.

    With staleness S, an interval may start epoch e only while `e ≤ min_epoch + S`, where `min_epoch` is the first epoch
    that not all intervals have finished. Synchronous epochs have S = 0 and read only rows of the same epoch. One number,
    the `horizon`, determines which epochs may start. All operations run in constant time, or logarithmic time with several
    barriers.

    An epoch is finished when the parameter servers have applied its gradient. An interval does not wait for this, so it
    may have several unfinished epochs.

    Args:
        num_intervals: Number of intervals K ≥ 1.
        staleness: Staleness bound S ≥ 0.
        first: First epoch.
        first_synchronous: Whether the first epoch is synchronous, to fill the ghosts; False if the buffers of the previous
            epoch were restored.
        synchronous: Whether all epochs are synchronous.
        synchronous_from: Epoch, at least `first`, from which all epochs are synchronous; None if not decided.

    Attributes:
        min_epoch: First epoch that not all intervals have finished.
        newest_started: Newest epoch that any interval has started; initially `first - 1`.

    Raises:
        ValueError: `num_intervals` is below 1, or `staleness` is negative.
    """

    def __init__(
        self,
        num_intervals: int,
        staleness: int,
        *,
        first: int = 0,
        first_synchronous: bool = True,
        synchronous: bool = False,
        synchronous_from: int | None = None,
    ) -> None:
        if num_intervals < 1:
            raise ValueError(f"num_intervals must be ≥ 1, got {num_intervals}")
        if staleness < 0:
            raise ValueError(f"staleness must be ≥ 0, got {staleness}")
        self.num_intervals, self.staleness = num_intervals, staleness
        self.min_epoch, self.newest_started = first, first - 1
        self._first, self._first_synchronous = first, first_synchronous
        self._synchronous_from = first if synchronous else synchronous_from
        self._next = [first] * num_intervals
        self._unfinished = [first] * num_intervals
        self._intervals_at = Counter({first: num_intervals})  # number of intervals by first unfinished epoch
        self._barriers: list[int] = []  # a heap
        self._held: set[int] = set()
        self._limit: int | None = None

    def epoch_of(self, interval: int) -> int:
        """Return the first epoch that the interval has not finished."""
        return self._unfinished[interval]

    @property
    def horizon(self) -> int:
        """Newest epoch that may start now. It never falls below an epoch that has started."""
        newest = self.min_epoch + self.staleness
        if self._first_synchronous and self.min_epoch == self._first:
            newest = self._first  # it fills the ghosts, so no interval may run ahead
        if self._synchronous_from is not None:
            newest = min(newest, max(self.min_epoch, self._synchronous_from - 1))
        if self._limit is not None:
            newest = min(newest, self._limit)
        return min(newest, self._barriers[0] - 1) if self._barriers else newest

    def may_start(self, interval: int, epoch: int) -> bool:
        """Return whether this is the interval's next epoch and may start now."""
        return epoch == self._next[interval] and epoch <= self.horizon

    def start(self, interval: int, epoch: int) -> None:
        """Record the start of an epoch by an interval.

        Raises:
            RunError: The interval must not start the epoch.
        """
        if not self.may_start(interval, epoch):
            raise RunError(
                f"interval {interval} must not start epoch {epoch}: its next is {self._next[interval]}, and {self.horizon} "
                "is the newest that may be started now"
            )
        self._next[interval] = epoch + 1
        self.newest_started = max(self.newest_started, epoch)

    def finished(self, interval: int, epoch: int) -> bool:
        """Record that an interval has finished an epoch; a repeat changes nothing.

        Returns:
            Whether `min_epoch` increased.

        Raises:
            RunError: The previous epoch is unfinished, or the epoch was never started.
        """
        due = self._unfinished[interval]
        if epoch < due:
            return False
        if epoch > due or epoch >= self._next[interval]:
            raise RunError(
                f"interval {interval} cannot have finished epoch {epoch}: its first unfinished epoch is {due}, and it has "
                f"started those before {self._next[interval]}"
            )
        self._unfinished[interval] = epoch + 1
        self._intervals_at[epoch] -= 1
        self._intervals_at[epoch + 1] += 1
        # Intervals that left this epoch are in the next one or later, so the next non-empty count is that of the next epoch.
        if self._intervals_at[epoch] or epoch != self.min_epoch:
            return False
        del self._intervals_at[epoch]
        self.min_epoch = epoch + 1
        self._lift()
        return True

    def barrier(self, epoch: int, *, hold: bool = False) -> None:
        """Block this epoch until all intervals have finished the previous ones.

        Args:
            epoch: An epoch that no interval has started.
            hold: Whether to block the epoch further until `release`.

        Raises:
            RunError: An interval has started the epoch or a later one.
        """
        if epoch <= self.newest_started:
            raise RunError(
                f"a barrier before epoch {epoch} comes too late: epoch {self.newest_started} was started; "
                f"{self.newest_started + 1} is the first that can have one"
            )
        heapq.heappush(self._barriers, epoch)
        if hold:
            self._held.add(epoch)
        self._lift()

    def limit(self, epoch: int) -> None:
        """Block all epochs after this one until a later limit is set. Unlike a barrier, a limit synchronizes no intervals.

        Args:
            epoch: Last epoch that may start; at least the current limit.

        Raises:
            RunError: The current limit is later, and intervals may have reached it.
        """
        if self._limit is not None and epoch < self._limit:
            raise RunError(f"the limit cannot go back from epoch {self._limit} to epoch {epoch}")
        self._limit = epoch

    def holds(self, epoch: int) -> bool:
        """Return whether this epoch is blocked until `release`."""
        return epoch in self._held

    def release(self, epoch: int) -> None:
        """End the hold on an epoch; its barrier then ends as usual.

        Raises:
            RunError: The epoch is not held.
        """
        if epoch not in self._held:
            raise RunError(f"epoch {epoch} is not held: there are holds on {sorted(self._held) or 'none'}")
        self._held.remove(epoch)
        self._lift()

    def drain(self) -> int:
        """Hold the first epoch that no interval has started.

        Returns:
            The held epoch, for `release`.
        """
        epoch = self.newest_started + 1
        self.barrier(epoch, hold=True)
        return epoch

    @property
    def common_epoch(self) -> int | None:
        """Next epoch of all intervals, if no epoch is in progress; None otherwise."""
        return self.min_epoch if self.min_epoch > self.newest_started else None

    def synchronise(self) -> int:
        """Make all epochs synchronous that no interval has started. The first of them waits for all earlier epochs.

        Returns:
            The first synchronous epoch. Repeated calls return the result of the first call.
        """
        if self._synchronous_from is None:
            self._synchronous_from = self.newest_started + 1
        return self._synchronous_from

    @property
    def switched(self) -> bool:
        """Whether all remaining epochs are synchronous."""
        return self._synchronous_from is not None

    @property
    def allowance(self) -> Allowance:
        """Current allowance of the hosts."""
        return Allowance(
            self.horizon,
            self._first if self._first_synchronous else self._first - 1,
            self.staleness,
            self._first if self._first_synchronous else None,
            self._synchronous_from,
        )

    def _lift(self) -> None:
        """Remove barriers that all intervals have reached, unless held."""
        while self._barriers and self._barriers[0] <= self.min_epoch and self._barriers[0] not in self._held:
            heapq.heappop(self._barriers)


@final
class Gate:
    """Admits a host's intervals to their epochs. Simultaneous waiters are admitted in order of their numbers.

    Args:
        allowance: Allowance of the host, which `allow` replaces.
        report: Called with each start before the interval continues.
    """

    def __init__(self, allowance: Allowance, report: Callable[[Started], None]) -> None:
        self.allowance = allowance
        self._report = report
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}

    async def enter(self, interval: int, epoch: int) -> None:
        """Wait until the interval may start the epoch, and start it.

        Args:
            interval: Number of the interval in the whole graph.
            epoch: Successor of the interval's last started epoch.
        """
        if epoch <= self.allowance.horizon:
            self._report(Started(interval, epoch))
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[interval] = (epoch, future)
        try:
            await future
        finally:
            del self._waiting[interval]

    def allow(self, allowance: Allowance) -> None:
        """Set the allowance, and admit the intervals that may start now."""
        self.allowance = allowance
        for interval in sorted(self._waiting):
            epoch, future = self._waiting[interval]
            if not future.done() and epoch <= allowance.horizon:
                self._report(Started(interval, epoch))
                future.set_result(None)
