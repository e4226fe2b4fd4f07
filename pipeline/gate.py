"""The gate before each epoch of a host: its intervals wait there until the host is told that they may start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from dorylax.pipeline.messages import Started
from dorylax.pipeline.staleness import Allowance


@final
class Gate:
    """Lets a host's intervals into their epochs, those that wait together in the order of their numbers.

    Args:
        allowance: how far they may go at first.
        report: told of each start before the interval goes on.

    Attributes:
        allowance: as the host was last told.
    """

    def __init__(self, allowance: Allowance, report: Callable[[Started], None]) -> None:
        self.allowance = allowance
        self._report = report
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}

    async def enter(self, interval: int, epoch: int) -> None:
        """Waits until the interval may start the epoch, and starts it.

        Args:
            interval: its number in the whole graph.
            epoch: the one after that which it started last.
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
        """Takes what the host is told, and lets in who may start now."""
        self.allowance = allowance
        for interval in sorted(self._waiting):
            epoch, future = self._waiting[interval]
            if not future.done() and epoch <= allowance.horizon:
                self._report(Started(interval, epoch))
                future.set_result(None)
