"""Shared timer that reports overdue items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, final

from dorylax.clock import Clock

T = TypeVar("T")


@final
class Watch(Generic[T]):
    """Watches items with a common time limit. The oldest item is due first, so one timer suffices.

    Thousands of short calls share a few wake-ups. If the limit shrinks while the timer runs, items are reported late, by
    less than the previous limit.

    Args:
        clock: Clock of the timer.
        name: Name of the timer's task.
        seconds: Function that returns the current time limit in seconds, or None if it is unknown.
        due: Callback for each overdue item, which is then no longer watched.
    """

    def __init__(
        self, clock: Clock, name: str, *, seconds: Callable[[], float | None], due: Callable[[T], None]
    ) -> None:
        self._clock, self._name = clock, name
        self._seconds, self._due = seconds, due
        self._began: dict[T, tuple[float, tuple[int, ...]]] = {}
        self._timer: asyncio.Task[None] | None = None

    def add(self, item: T, order: tuple[int, ...]) -> None:
        """Start to watch an item.

        Args:
            item: Item that is not watched yet.
            order: Order of simultaneous events; see `Clock.sleep`.
        """
        self._began[item] = self._clock.now(), order
        self.rouse()

    def discard(self, item: T) -> None:
        """Stop watching an item, if it is watched."""
        self._began.pop(item, None)
        if not self._began and self._timer is not None:
            # Cancel the idle timer, which would still take part in virtual time.
            self._timer.cancel()
            self._timer = None

    def rouse(self) -> None:
        """Start the timer once the time limit is known."""
        if self._timer is None and self._began and self._seconds() is not None:
            self._timer = self._clock.spawn(self._tell(), name=self._name)

    async def _tell(self) -> None:
        while self._began:
            item, (start, order) = next(iter(self._began.items()))
            await self._clock.sleep(max(0.0, self._end(start) - self._clock.now()), order)
            # Meanwhile, the item may have ended or the limit may have grown.
            if item in self._began and self._clock.now() >= self._end(start):
                del self._began[item]
                self._due(item)
        self._timer = None

    def _end(self, start: float) -> float:
        seconds = self._seconds()
        return start if seconds is None else start + seconds
