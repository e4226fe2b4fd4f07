"""Applies what a throttle decides: lowers the cap of a slot limit, to 0 during a pause."""

from __future__ import annotations

import asyncio
import logging
from typing import final

from dorylax.clock import Clock
from dorylax.serverless.controller.slot_limit import SlotLimit
from dorylax.serverless.controller.throttle import Throttle
from dorylax.serverless.task import TaskKey

_log = logging.getLogger("dorylax.controller")


@final
class Backoff:
    """Withholds slots after calls were refused.

    Args:
        throttle: decides how many and how long.
        limit: whose cap it sets.
        clock: on which pauses pass.
    """

    def __init__(self, throttle: Throttle, limit: SlotLimit, clock: Clock) -> None:
        self._throttle, self._limit, self._clock = throttle, limit, clock
        self._pause: asyncio.Task[None] | None = None
        self._told = False

    def taken(self, start: float) -> None:
        """Records that a call begun at `start` was not refused."""
        if self._throttle.taken(start, self._limit.slots):
            self._limit.cap(self._throttle.limit)

    def refused(self, key: TaskKey, start: float, running: int, order: tuple[int, ...]) -> str | None:
        """Records a refused call, while it holds its slot: once given back, the next call takes it at once.

        Args:
            key: of its task.
            start: when it began.
            running: calls that run beside it.
            order: see `Clock.sleep`.

        Returns:
            Why the task should fail; None while it is worth trying again.
        """
        throttle, now = self._throttle, self._clock.now()
        seconds = throttle.refused(key, start, now, running)
        if seconds is not None:
            self._limit.cap(0)
            self._pause = self._clock.spawn(self._end(seconds, order), name="pause of throttled tensor tasks")
            # As a warning only once: if there are always too many calls, this happens again and again.
            level = logging.INFO if self._told else logging.WARNING
            _log.log(level, "a call beside %d others was throttled: none begins for %.3g s", running, seconds)
            self._told = True
        if throttle.hopeless(now, running):
            return f"every call has been throttled for {throttle.patience:g} seconds"
        return None

    def release(self) -> None:
        """Ends a pause, if there is one."""
        if self._pause is not None:
            self._pause.cancel()
            self._resume()

    async def _end(self, seconds: float, order: tuple[int, ...]) -> None:
        await self._clock.sleep(seconds, order)
        self._resume()

    def _resume(self) -> None:
        self._pause = None
        self._throttle.resume(self._clock.now())
        self._limit.cap(self._throttle.limit)
