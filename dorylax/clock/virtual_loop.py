"""An asyncio loop whose time jumps from event to event and never passes by itself.

asyncio asks its selector to wait when nothing is ready to run. This selector takes the next event instead, sets the time to
the event's, and makes it happen. asyncio's timers (`asyncio.sleep`, `asyncio.timeout`) are events like others. Nothing
comes from outside: this loop has no I/O, and no other thread may call into it.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, TypeVarTuple, final

from dorylax.clock.base import DeadlockError

Ts = TypeVarTuple("Ts")
Cancellable = asyncio.Future[None] | asyncio.TimerHandle


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. One event happens at a time, and all that becomes ready by it runs before the next one.

    Args:
        start: the time it begins with, in seconds.
    """

    def __init__(self, start: float) -> None:
        super().__init__(_JumpingSelector(self._next_event))
        self._now = start
        # When, which goes first at that time (order, then sequence), whose it is, what happens.
        self._events: list[tuple[float, tuple[int, ...], int, Cancellable, Callable[[], object]]] = []
        self._sequence = 0

    def time(self) -> float:
        """Virtual seconds: exactly the time of the event that happened last."""
        return self._now

    def wake_at(self, when: float, order: tuple[int, ...]) -> asyncio.Future[None]:
        """A future that is done at `when`, in seconds; cancelling it removes the event."""
        future: asyncio.Future[None] = self.create_future()
        self._add(when, order, future, partial(future.set_result, None))
        return future

    def wake_in(self, seconds: float, order: tuple[int, ...]) -> asyncio.Future[None]:
        """As `wake_at`, so many seconds from now."""
        return self.wake_at(self._now + seconds, order)

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> asyncio.Future[None]:
        """Calls `happen` at `when`, in seconds; cancelling the future, which is never done, removes the event."""
        future: asyncio.Future[None] = self.create_future()
        self._add(when, order, future, happen)
        return future

    def jump(self, to: float) -> None:
        """Moves the time to `to`; see `VirtualClock.jump`."""
        due = min((when for when, _, _, whose, _ in self._events if not whose.cancelled()), default=to)
        if not self._now <= to <= due:
            raise ValueError(f"time can move from {self._now} to {due} at most, got {to}")
        self._now = to

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, which `call_later` uses too. At equal times timers come before what has an order."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._add(when, (), handle, partial(self.call_soon, callback, *args, context=context))
        return handle

    def _add(self, when: float, order: tuple[int, ...], whose: Cancellable, happen: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, order, self._sequence, whose, happen))

    def _next_event(self) -> None:
        while self._events:
            when, _, _, whose, happen = heapq.heappop(self._events)
            if not whose.cancelled():
                self._now = max(self._now, when)
                happen()
                return
        raise DeadlockError(task.get_name() for task in asyncio.all_tasks(self))


@final
class _JumpingSelector(selectors.BaseSelector):
    """Calls `idle` where another selector would wait. It holds what asyncio registers, the loop's own wake-up pipe."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._idle = idle
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | int | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:  # else something is ready to run
            self._idle()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
