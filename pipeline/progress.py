"""The ledger as others see it: hears what intervals have done, tells hosts how far they may go.

It stands beside the first parameter server, which says what is applied. Within one process news and allowances are calls;
between processes they are messages. `Walked` and `Applied` may then come twice: a repeat changes nothing. `Started` and
allowances have to come once and in order; one that is late only makes a host wait, but for those that take back what an
earlier one allowed. Before these, hosts elsewhere have to stop and report: it must be known what they have started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from dorylax.pipeline.messages import Started, Walked
from dorylax.pipeline.parameters.messages import Applied, Pair
from dorylax.pipeline.staleness import Allowance, Ledger

Tell = Callable[[Allowance], None]
"""Takes an allowance to a host."""


@final
class Progress:
    """How far a run has come.

    An interval has finished an epoch when it has walked through it and its gradient is applied, so whatever the staleness
    bound promises about rows holds for ghosts too.

    Args:
        ledger: what decides.

    Attributes:
        ledger: as given.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._hosts: list[Tell] = []
        self._walked: set[Pair] = set()
        self._applied: set[Pair] = set()
        self._losses: dict[int, dict[int, float]] = {}
        self._reached: list[tuple[int, asyncio.Future[None]]] = []

    def join(self, tell: Tell) -> None:
        """Tells a host of every allowance from now on."""
        self._hosts.append(tell)

    # What is reported.

    def hear(self, news: Started | Walked) -> None:
        """Takes what a host reports.

        Raises:
            LedgerError: an epoch that the interval must not start.
        """
        if isinstance(news, Started):
            self.ledger.start(*news)
        else:
            self._finish(self._walked, (news.interval, news.epoch))

    def applied(self, applied: Applied) -> None:
        """Takes what the first parameter server reports: complete gradients that are in the weights."""
        for (interval, epoch), loss in zip(applied.pairs, applied.losses, strict=True):
            if epoch >= self.ledger.epoch_of(interval):
                self._losses.setdefault(epoch, {})[interval] = loss
        for pair in applied.pairs:
            self._finish(self._applied, pair)

    # What the driver asks.

    async def finished(self, epoch: int) -> float:
        """Waits until every interval has finished an epoch.

        Returns:
            The epoch's loss: its intervals' parts, added in the order of their numbers.
        """
        if self.ledger.min_epoch <= epoch:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((epoch, future))
            await future
        return _total(self._losses.pop(epoch))

    def unasked(self) -> list[tuple[int, float]]:
        """(epoch, loss) of epochs that all have finished, and that nobody has asked for."""
        return [(epoch, _total(self._losses[epoch])) for epoch in sorted(self._losses) if epoch < self.ledger.min_epoch]

    def open(self, epoch: int) -> None:
        """Lets the driver's next epoch begin, and no interval the one after it, where that is a synchronous one.

        Else intervals would begin it at once, beside what the driver does between epochs.
        """
        ledger = self.ledger
        if ledger.holds(epoch):  # until now the run could be saved there
            ledger.release(epoch)
        if ledger.allowance.synchronous(epoch + 1) and not ledger.holds(epoch + 1):
            ledger.barrier(epoch + 1, hold=True)
        self._changed()

    def hold(self, epoch: int) -> None:
        """Lets nobody start this epoch before `release`; see `Ledger.barrier`."""
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
            decide: told of the first synchronous epoch before anybody may start it.
        """
        epoch = self.ledger.synchronise()
        decide(epoch)
        self._changed()
        return epoch

    def _finish(self, half: set[Pair], pair: Pair) -> None:
        """Notes that an interval has one half of an epoch; the epoch is finished when it has both."""
        if pair[1] < self.ledger.epoch_of(pair[0]):
            return  # a repeat
        half.add(pair)
        if pair in self._walked and pair in self._applied:
            self._walked.remove(pair)
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
    """Of intervals, in the order of their numbers."""
    return sum(losses[interval] for interval in sorted(losses))
