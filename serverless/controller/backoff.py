"""Backoff after refused calls: applies a throttle's decisions to the cap of a slot limit."""

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
    """Withholds slots after refused calls. The cap is 0 during a pause.

    Args:
        throttle: Policy for the limit and the pauses.
        limit: Slot limit whose cap is set.
        clock: Clock of the pauses.
    """

    def __init__(self, throttle: Throttle, limit: SlotLimit, clock: Clock) -> None:
        self._throttle, self._limit, self._clock = throttle, limit, clock
        self._pause: asyncio.Task[None] | None = None
        self._told = False

    def taken(self, start: float) -> None:
        """Record an accepted call that started at `start`."""
        if self._throttle.taken(start, self._limit.slots):
            self._limit.cap(self._throttle.limit)

    def refused(self, key: TaskKey, start: float, running: int, order: tuple[int, ...]) -> str | None:
        """Record a refused call. Call this before releasing its slot, which the next call would otherwise take.

        Args:
            key: Key of its task.
            start: Start time of the call in seconds.
            running: Number of other running calls.
            order: Order of simultaneous events; see `Clock.sleep`.

        Returns:
            Reason why the task should fail, or None if a retry is worthwhile.
        """
        throttle, now = self._throttle, self._clock.now()
        seconds = throttle.refused(key, start, now, running)
        if seconds is not None:
            self._limit.cap(0)
            self._pause = self._clock.spawn(self._end(seconds, order), name="pause of throttled tensor tasks")
            # Warn only once, because constant overload repeats this often.
            level = logging.INFO if self._told else logging.WARNING
            _log.log(level, "a call beside %d others was throttled: none begins for %.3g s", running, seconds)
            self._told = True
        if throttle.hopeless(now, running):
            return f"every call has been throttled for {throttle.patience:g} seconds"
        return None

    def release(self) -> None:
        """End the current pause, if any."""
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
