"""A part of a clock whose tasks and workers can be ended while the clock continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, final

from dorylax.clock.base import Clock, Workers
from dorylax.clock.duration import Duration

T = TypeVar("T")


@final
class ClockScope(Clock):
    """Shows the time of another clock, and makes tasks and workers there.

    Args:
        clock: The other clock, which its owner runs and closes.
    """

    def __init__(self, clock: Clock) -> None:
        self.kind = clock.kind
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: list[Workers] = []
        self._abandoned = False

    def now(self) -> float:
        """See `Clock.now`."""
        return self._clock.now()

    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:
        """See `Clock.sleep`."""
        await self._clock.sleep(seconds, order)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`; `abandon` ends them."""
        found = self._clock.workers(name, slots)
        self._workers.append(found)
        return found

    def run(self, awaitable: Awaitable[T]) -> T:
        """See `Clock.run`."""
        return self._clock.run(awaitable)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """See `Clock.spawn`; `abandon` cancels it, also an earlier one."""
        task = self._clock.spawn(coroutine, name=name)
        if self._abandoned:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in sorted(self._tasks, key=asyncio.Task.get_name):
            task.cancel()

    async def abandon(self) -> None:
        """Cancel all tasks, wait for them, and end the workers after their current work."""
        self._abandoned = True
        while self._tasks:  # clean-up may make new ones
            self.cancel()
            await asyncio.wait(self._tasks)
        for workers in self._workers:
            await workers.end()
        self._workers.clear()

    def close(self) -> None:
        """Do nothing, because the other clock closes everything."""
