"""Real time: work runs in threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, final

from dorylax.clock.base import Workers
from dorylax.clock.duration import Duration, check_duration
from dorylax.clock.loop_clock import LoopClock
from dorylax.clock.threads import Threads


@final
class RealClock(LoopClock):
    """Seconds since the clock was made, by the machine's monotonic clock.

    Args:
        initializer: Called first in every thread that the clock makes, because threads do not inherit thread-local state.
        one_core: Whether the process has only one core (`Threads`).
    """

    kind: Literal["real", "virtual"] = "real"

    def __init__(self, initializer: Callable[[], None] | None = None, *, one_core: bool = False) -> None:
        super().__init__(asyncio.new_event_loop(), initializer)
        self._origin = time.perf_counter()
        self._one_core = one_core
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
        """See `Clock.after`; a call without delay needs no task."""
        if seconds == 0.0 and not self._loop.is_closed():
            self._loop.call_soon(self._unless_closing, call)
        else:
            super().after(seconds, order, call, name=name)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`."""
        threads = Threads(name, slots, self.now, self._initializer, one_core=self._one_core)
        self._pools.append(threads)
        return threads

    def _end_workers(self) -> None:
        for pool in self._pools:
            pool.close()
