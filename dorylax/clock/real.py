"""Real time: work runs in threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar, final

from dorylax.clock.base import Clock, Workers
from dorylax.clock.duration import Duration, check_duration
from dorylax.clock.task_loop import TaskLoop
from dorylax.clock.threads import Threads

T = TypeVar("T")


@final
class RealClock(Clock):
    """Seconds since the clock was made, by the machine's monotonic clock.

    Args:
        initializer: Called first in every thread that the clock makes, because threads do not inherit thread-local state.
        one_core: Whether the process has only one core (`Threads`).
    """

    kind: Literal["real", "virtual"] = "real"

    def __init__(self, initializer: Callable[[], None] | None = None, *, one_core: bool = False) -> None:
        self._origin = time.perf_counter()
        self._loop = asyncio.new_event_loop()
        self._tasks = TaskLoop(self._loop, initializer)
        self._initializer, self._one_core = initializer, one_core
        self._pools: list[Threads] = []

    def now(self) -> float:
        """See `Clock.now`."""
        return time.perf_counter() - self._origin

    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:  # noqa: ARG002
        """See `Clock.sleep`."""
        if isinstance(seconds, tuple):
            raise TypeError("only the virtual clock knows what is shared: the real one sleeps for seconds")
        check_duration(seconds)
        await asyncio.sleep(seconds)

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:
        """See `Clock.after`; at once without a task."""
        if seconds == 0.0 and not self._loop.is_closed():
            self._loop.call_soon(self._tasks.call, call)
        else:
            super().after(seconds, order, call, name=name)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`."""
        threads = Threads(name, slots, self.now, self._initializer, one_core=self._one_core)
        self._pools.append(threads)
        return threads

    def run(self, awaitable: Awaitable[T]) -> T:
        """See `Clock.run`."""
        return self._tasks.run(awaitable)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """See `Clock.spawn`."""
        return self._tasks.spawn(coroutine, name)

    def close(self) -> None:
        """See `Clock.close`."""
        self._tasks.close(self._end_workers)

    def _end_workers(self) -> None:
        for pool in self._pools:
            pool.close()
