"""Reports what takes too long, with one timer for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, final

from dorylax.clock import Clock

T = TypeVar("T")


@final
class Watch(Generic[T]):
    """Items that may all take the same time: the one that began first is due first, so the timer is always for that one.

    Thousands of short calls then share a few wake-ups. If the time becomes shorter while the timer runs, items are reported
    late, by less than the time was before.

    Args:
        clock: where time comes from.
        name: of the timer's task.
        seconds: how long items may take now; None: not known yet.
        due: called with an item that has taken that long; it is then no longer watched.
    """

    def __init__(
        self, clock: Clock, name: str, *, seconds: Callable[[], float | None], due: Callable[[T], None]
    ) -> None:
        self._clock, self._name = clock, name
        self._seconds, self._due = seconds, due
        self._began: dict[T, tuple[float, tuple[int, ...]]] = {}
        self._timer: asyncio.Task[None] | None = None

    def add(self, item: T, order: tuple[int, ...]) -> None:
        """Watches an item, which begins now.

        Args:
            item: not watched yet.
            order: see `Clock.sleep`.
        """
        self._began[item] = self._clock.now(), order
        self.rouse()

    def discard(self, item: T) -> None:
        """Watches an item no longer, if it did."""
        self._began.pop(item, None)
        if not self._began and self._timer is not None:
            # Without an item nothing is due, not even in virtual time.
            self._timer.cancel()
            self._timer = None

    def rouse(self) -> None:
        """Call this when the time has become known."""
        if self._timer is None and self._began and self._seconds() is not None:
            self._timer = self._clock.spawn(self._tell(), name=self._name)

    async def _tell(self) -> None:
        while self._began:
            item, (start, order) = next(iter(self._began.items()))
            await self._clock.sleep(max(0.0, self._end(start) - self._clock.now()), order)
            # In the meantime it may have ended, or the time may have become longer.
            if item in self._began and self._clock.now() >= self._end(start):
                del self._began[item]
                self._due(item)
        self._timer = None

    def _end(self, start: float) -> float:
        seconds = self._seconds()
        return start if seconds is None else start + seconds
