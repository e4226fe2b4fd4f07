"""The gate before each epoch of a host, where intervals wait until an allowance lets them start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from dorylax.pipeline.messages import Started
from dorylax.pipeline.staleness import Allowance


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
