"""The gate before each epoch: coroutines wait at it until the ledger lets them start."""

from __future__ import annotations

import asyncio
from typing import final

from dorylax.pipeline.staleness import Ledger


@final
class Gate:
    """Lets intervals into their epochs, those that wait together in the order of their numbers.

    Args:
        ledger: what decides.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}
        self._reached: list[tuple[int, asyncio.Future[None]]] = []

    async def enter(self, interval: int, epoch: int) -> None:
        """Waits until the interval may start the epoch, and starts it."""
        if not self.ledger.may_start(interval, epoch):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[interval] = (epoch, future)
            try:
                await future
            finally:
                self._waiting.pop(interval, None)
        else:
            self.ledger.start(interval, epoch)

    async def all_finished(self, epoch: int) -> None:
        """Waits until every interval has finished an epoch."""
        if self.ledger.min_epoch > epoch:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reached.append((epoch, future))
        await future

    def finished(self, interval: int, epoch: int) -> None:
        """Notes that an interval has finished an epoch."""
        if self.ledger.finished(interval, epoch):
            self.changed()

    def changed(self) -> None:
        """Lets in who may start now; after the ledger has changed otherwise."""
        for epoch, future in [entry for entry in self._reached if entry[0] < self.ledger.min_epoch]:
            self._reached.remove((epoch, future))
            if not future.done():
                future.set_result(None)
        for interval in sorted(self._waiting):
            epoch, future = self._waiting[interval]
            if not future.done() and self.ledger.may_start(interval, epoch):
                self.ledger.start(interval, epoch)
                future.set_result(None)
