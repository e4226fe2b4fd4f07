"""The interface of the ledger: it receives the progress of intervals and broadcasts allowances to hosts.

It shares a process with the first parameter server, which reports applied gradients. Within one process, updates and
allowances are function calls; between processes they are messages. Repeats of `Completed` and `Applied` change nothing.
`Started` and allowances must arrive once and in order. A late allowance only delays a host, except for one that revokes an
earlier allowance. Before a revocation, hosts in other processes stop and report their started epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.parameters.records import Applied, Pair
from dorylax.pipeline.staleness import Allowance, Ledger

Tell = Callable[[Allowance], None]
"""Sends an allowance to a host."""


@final
class Progress:
    """Progress of a run.

    An interval has finished an epoch after all of its steps and the application of its gradient. The staleness bound on
    rows therefore also holds for ghosts.

    Args:
        ledger: Decides the allowances.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._hosts: list[Tell] = []
        self._completed: set[Pair] = set()
        self._applied: set[Pair] = set()
        self._losses: dict[int, dict[int, float]] = {}
        self._reached: list[tuple[int, asyncio.Future[None]]] = []

    def join(self, tell: Tell) -> None:
        """Send every allowance from now on to a host."""
        self._hosts.append(tell)

    # Reports.

    def hear(self, news: Started | Completed) -> None:
        """Record a report of a host.

        Raises:
            RunError: The interval must not start the epoch.
        """
        if isinstance(news, Started):
            self.ledger.start(*news)
        else:
            self._finish(self._completed, (news.interval, news.epoch))

    def applied(self, applied: Applied) -> None:
        """Record applied gradients, as reported by the first parameter server."""
        for (interval, epoch), loss in zip(applied.pairs, applied.losses, strict=True):
            if epoch >= self.ledger.epoch_of(interval):
                self._losses.setdefault(epoch, {})[interval] = loss
        for pair in applied.pairs:
            self._finish(self._applied, pair)

    # Requests of the driver.

    async def finished(self, epoch: int) -> float:
        """Wait until every interval has finished an epoch.

        Returns:
            The epoch's loss, summed over intervals in the order of their numbers.
        """
        if self.ledger.min_epoch <= epoch:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((epoch, future))
            await future
        return _total(self._losses.pop(epoch))

    def unasked(self) -> list[tuple[int, float]]:
        """Return (epoch, loss) of finished epochs that the driver has not requested yet."""
        return [(epoch, _total(self._losses[epoch])) for epoch in sorted(self._losses) if epoch < self.ledger.min_epoch]

    def open(self, epoch: int) -> None:
        """Allow the driver's next epoch, and hold the following one if it is synchronous.

        Without the hold, intervals would start it while the driver works between epochs.
        """
        ledger = self.ledger
        if ledger.holds(epoch):  # held for a checkpoint until now
            ledger.release(epoch)
        if ledger.allowance.synchronous(epoch + 1) and not ledger.holds(epoch + 1):
            ledger.barrier(epoch + 1, hold=True)
        self._changed()

    def hold(self, epoch: int) -> None:
        """Hold this epoch until `release`; see `Ledger.barrier`."""
        self.ledger.barrier(epoch, hold=True)
        self._tell()

    def release(self, epoch: int) -> None:
        """See `Ledger.release`."""
        self.ledger.release(epoch)
        self._changed()

    def drain(self) -> int:
        """See `Ledger.drain`."""
        epoch = self.ledger.drain()
        self._tell()
        return epoch

    def synchronise(self, decide: Callable[[int], None]) -> int:
        """See `Ledger.synchronise`.

        Args:
            decide: Called with the first synchronous epoch before any interval may start it.
        """
        epoch = self.ledger.synchronise()
        decide(epoch)
        self._changed()
        return epoch

    def _finish(self, half: set[Pair], pair: Pair) -> None:
        """Record one half of an epoch for an interval; the epoch is finished with both."""
        if pair[1] < self.ledger.epoch_of(pair[0]):
            return  # a repeat
        half.add(pair)
        if pair in self._completed and pair in self._applied:
            self._completed.remove(pair)
            self._applied.remove(pair)
            if self.ledger.finished(*pair):
                self._changed()

    def _changed(self) -> None:
        for entry in [entry for entry in self._reached if entry[0] < self.ledger.min_epoch]:
            self._reached.remove(entry)
            if not entry[1].done():
                entry[1].set_result(None)
        self._tell()

    def _tell(self) -> None:
        allowance = self.ledger.allowance
        for tell in self._hosts:
            tell(allowance)


def _total(losses: dict[int, float]) -> float:
    """Return the sum over intervals in the order of their numbers."""
    return sum(losses[interval] for interval in sorted(losses))
