"""The staleness ledger: which epoch each interval stands in, and who may start which epoch (dorylus.md §4, BPAC).

Decides only. Who is told of what it decides is `progress`'s business, who waits for it the gate's.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple, final

from dorylax.errors import RunError


class Allowance(NamedTuple):
    """What a host knows of the ledger: how far its intervals may go, and how old the rows may be that they read.

    Attributes:
        horizon: the newest epoch that may be started now.
        oldest_rows: the first epoch that has rows: the run's first, or the one before where buffers were restored.
        staleness: S.
        fills_ghosts: the synchronous first epoch of a run that restored no buffers; None elsewhere.
        synchronous_from: this epoch and all later ones are synchronous; None where that is not decided.
    """

    horizon: int
    oldest_rows: int
    staleness: int
    fills_ghosts: int | None
    synchronous_from: int | None

    def synchronous(self, epoch: int) -> bool:
        """Whether an epoch is synchronous."""
        if self.synchronous_from is not None and epoch >= self.synchronous_from:
            return True
        return epoch == self.fills_ghosts

    def required_row_epoch(self, epoch: int) -> int:
        """The oldest epoch of rows that an interval may read in an epoch.

        That is the epoch itself where it is synchronous, and `epoch - S - 1` elsewhere, but never an epoch before the
        first whose rows there are. What is computed once, before training, has the epoch -1.
        """
        if epoch < 0:
            return -1
        return epoch if self.synchronous(epoch) else max(self.oldest_rows, epoch - self.staleness - 1)


@final
class Ledger:
    """Counts the epochs of intervals and bounds how far they may run apart.

    With the staleness S, an interval may start epoch e only while `e ≤ min_epoch + S`, `min_epoch` being the first epoch
    that not all have finished. Synchronous epochs have S = 0, and rows of that very epoch only. What may be started is
    one number, the `horizon`; all operations take constant or, with several barriers, logarithmic time.

    An interval may have started several epochs that are not finished: finished means applied by the parameter servers,
    which it does not wait for.

    Args:
        num_intervals: K ≥ 1.
        staleness: S ≥ 0.
        first: the first epoch.
        first_synchronous: that epoch is synchronous, to fill the ghosts; False where the buffers of the epoch before
            were brought back.
        synchronous: all epochs are.
        synchronous_from: this epoch, not before the first, and all later ones are; None where that is not decided.

    Attributes:
        num_intervals: K.
        staleness: S.
        min_epoch: the first epoch that not all intervals have finished.
        newest_started: the newest epoch that any interval has started; `first - 1` before that.

    Raises:
        ValueError: no interval, or a negative staleness.
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
        self._standing = Counter({first: num_intervals})  # how many intervals have this as their first unfinished epoch
        self._barriers: list[int] = []  # a heap
        self._held: set[int] = set()
        self._limit: int | None = None

    def epoch_of(self, interval: int) -> int:
        """The first epoch that the interval has not finished."""
        return self._unfinished[interval]

    @property
    def horizon(self) -> int:
        """The newest epoch that may be started now. It never moves back behind an epoch that was started."""
        newest = self.min_epoch + self.staleness
        if self._first_synchronous and self.min_epoch == self._first:
            newest = self._first  # the first fills the ghosts: nobody runs ahead of it
        if self._synchronous_from is not None:
            newest = min(newest, max(self.min_epoch, self._synchronous_from - 1))
        if self._limit is not None:
            newest = min(newest, self._limit)
        return min(newest, self._barriers[0] - 1) if self._barriers else newest

    def may_start(self, interval: int, epoch: int) -> bool:
        """Whether it is this epoch that the interval starts next, and now."""
        return epoch == self._next[interval] and epoch <= self.horizon

    def start(self, interval: int, epoch: int) -> None:
        """Notes that an interval starts an epoch.

        Raises:
            RunError: it may not.
        """
        if not self.may_start(interval, epoch):
            raise RunError(
                f"interval {interval} must not start epoch {epoch}: its next is {self._next[interval]}, and {self.horizon} "
                "is the newest that may be started now"
            )
        self._next[interval] = epoch + 1
        self.newest_started = max(self.newest_started, epoch)

    def finished(self, interval: int, epoch: int) -> bool:
        """Notes that an interval has finished an epoch; a repeat changes nothing.

        Returns:
            Whether `min_epoch` moved on.

        Raises:
            RunError: the epoch before it is not finished, or it was never started.
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
        self._standing[epoch] -= 1
        self._standing[epoch + 1] += 1
        # Those that left are one epoch further at least, so the next non-empty count is the very next.
        if self._standing[epoch] or epoch != self.min_epoch:
            return False
        del self._standing[epoch]
        self.min_epoch = epoch + 1
        self._lift()
        return True

    def barrier(self, epoch: int, *, hold: bool = False) -> None:
        """Lets nobody start this epoch before all have finished the ones before it.

        Args:
            epoch: not started by anyone yet.
            hold: even then nobody starts it, until `release`.

        Raises:
            RunError: the epoch, or one after it, was started.
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
        """Lets nobody start an epoch after this one until a later limit is set. Nobody waits there for others.

        Args:
            epoch: not before an earlier limit.

        Raises:
            RunError: there is a later limit, which somebody may have come to.
        """
        if self._limit is not None and epoch < self._limit:
            raise RunError(f"the limit cannot go back from epoch {self._limit} to epoch {epoch}")
        self._limit = epoch

    def holds(self, epoch: int) -> bool:
        """Whether nobody starts this epoch until `release`."""
        return epoch in self._held

    def release(self, epoch: int) -> None:
        """Ends the hold on an epoch: its barrier is then lifted as any other is.

        Raises:
            RunError: it is not held.
        """
        if epoch not in self._held:
            raise RunError(f"epoch {epoch} is not held: there are holds on {sorted(self._held) or 'none'}")
        self._held.remove(epoch)
        self._lift()

    def drain(self) -> int:
        """Holds all intervals at the first epoch that nobody has started.

        Returns:
            That epoch, for `release`.
        """
        epoch = self.newest_started + 1
        self.barrier(epoch, hold=True)
        return epoch

    @property
    def standing(self) -> int | None:
        """The epoch that all intervals will start next, where none has one in progress; None elsewhere."""
        return self.min_epoch if self.min_epoch > self.newest_started else None

    def synchronise(self) -> int:
        """Makes all epochs that nobody has started synchronous. Nobody starts the first before all have finished the others.

        Returns:
            The first of them; that of the first call where there were several.
        """
        if self._synchronous_from is None:
            self._synchronous_from = self.newest_started + 1
        return self._synchronous_from

    @property
    def switched(self) -> bool:
        """Whether all epochs that nobody has started are synchronous."""
        return self._synchronous_from is not None

    @property
    def allowance(self) -> Allowance:
        """What hosts are told now."""
        return Allowance(
            self.horizon,
            self._first if self._first_synchronous else self._first - 1,
            self.staleness,
            self._first if self._first_synchronous else None,
            self._synchronous_from,
        )

    def _lift(self) -> None:
        """Forgets barriers that all have reached."""
        while self._barriers and self._barriers[0] <= self.min_epoch and self._barriers[0] not in self._held:
            heapq.heappop(self._barriers)
