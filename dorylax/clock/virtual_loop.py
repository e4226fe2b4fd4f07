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
from typing import Any, NoReturn, TypeVarTuple, final

from dorylax.clock.base import DeadlockError

Ts = TypeVarTuple("Ts")


@final
class Event:
    """Something that happens unless it is cancelled.

    Attributes:
        happen: what is called; None once it was, or is not to be.
    """

    __slots__ = ("happen",)

    def __init__(self, happen: Callable[[], object]) -> None:
        self.happen: Callable[[], object] | None = happen

    def cancel(self) -> None:
        """It is not to happen."""
        self.happen = None


@final
class _Timer(asyncio.TimerHandle):
    """Of asyncio's `call_at`.

    Attributes:
        event: what it has been made.
    """

    __slots__ = ("event",)

    event: Event

    def cancel(self) -> None:
        """As asyncio's."""
        self.event.cancel()
        super().cancel()


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. One event happens at a time, and all that becomes ready by it runs before the next one.

    Args:
        start: the time it begins with, in seconds.

    Attributes:
        now: as `time`, without a call.
    """

    def __init__(self, start: float) -> None:
        super().__init__(_JumpingSelector(self._next_events))
        self.now = start
        # When, which goes first at that time (order, then sequence), and what.
        self._events: list[tuple[float, tuple[int, ...], int, Event]] = []
        self._sequence = 0
        self._before: list[Callable[[], object]] = []
        self._woken = False  # whether something is ready to run since the last event, or the loop is to stop

    def time(self) -> float:
        """Virtual seconds: exactly the time of the event that happened last."""
        return self.now

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> Event:
        """Calls `happen` at `when`, in seconds, unless the event is cancelled. What it raises ends the run."""
        event = Event(happen)
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._events, (when, order, sequence, event))
        return event

    def happen_in(self, seconds: float, order: tuple[int, ...], happen: Callable[[], object]) -> Event:
        """As `happen_at`, so many seconds from now."""
        return self.happen_at(self.now + seconds, order, happen)

    def before_next(self, call: Callable[[], object]) -> None:
        """Calls something once all that this moment brings has happened, before the next event, in the order of asking."""
        self._before.append(call)

    def jump(self, to: float) -> None:
        """Moves the time to `to`; see `VirtualClock.jump`."""
        self._end_moment()
        due = min((when for when, _, _, event in self._events if event.happen is not None), default=to)
        if not self.now <= to <= due:
            raise ValueError(f"time can move from {self.now} to {due} at most, got {to}")
        self.now = to

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, which `call_later` uses too. At equal times timers come before what has an order."""
        handle = _Timer(when, callback, args, self, context)
        handle.event = self.happen_at(when, (), partial(self.call_soon, callback, *args, context=context))
        return handle

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's, which futures and tasks use too."""
        self._woken = True
        return super().call_soon(callback, *args, context=context)

    def stop(self) -> None:
        """As asyncio's."""
        self._woken = True
        super().stop()

    def _end_moment(self) -> None:
        before, self._before = self._before, []
        for call in before:
            call()

    def _next_events(self) -> None:
        """Lets events happen until something is ready to run; going round the loop costs more than most of them."""
        events, pop = self._events, heapq.heappop
        self._woken = False
        while not self._woken:
            if self._before:
                self._end_moment()
            while events:
                when, _, _, event = pop(events)
                if (happen := event.happen) is not None:
                    event.happen = None
                    self.now = max(self.now, when)
                    happen()
                    break
            else:
                self._deadlock()

    def _deadlock(self) -> NoReturn:
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
