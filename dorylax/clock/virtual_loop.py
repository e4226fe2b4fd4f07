"""An asyncio loop whose time jumps from event to event and never passes by itself.

asyncio asks its selector to wait for what comes from outside. Nothing does: this loop has no I/O. So the selector runs
whatever is ready, takes the next event, sets the time to the event's, makes it happen, and returns to asyncio only when the
loop is to stop. asyncio's timers (`asyncio.sleep`, `asyncio.timeout`) are events like others.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, NoReturn, TypeVarTuple, final

from dorylax.clock.base import DeadlockError

Ts = TypeVarTuple("Ts")


@final
class _Timer(asyncio.TimerHandle):
    """Of asyncio's `call_at`.

    Attributes:
        forget: cancels the event that it has been made.
    """

    __slots__ = ("forget",)

    forget: Callable[[], None]

    def cancel(self) -> None:
        """As asyncio's."""
        self.forget()
        super().cancel()


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. One event happens at a time, and all that becomes ready by it runs before the next one.

    It keeps what is ready itself: asyncio's way round its own loop takes longer than most of what happens here.

    Args:
        start: the time it begins with, in seconds.

    Attributes:
        now: as `time`, without a call.
        before_next: calls something once all that this moment brings has happened, before the next event, in the order of
            asking.
    """

    def __init__(self, start: float) -> None:
        self._ready_to_run = deque[asyncio.Handle]()
        super().__init__(_JumpingSelector(self._run_events))
        self.now = start
        # When, which goes first at that time (order, then sequence); and, by sequence, what, unless it was cancelled.
        self._events: list[tuple[float, tuple[int, ...], int]] = []
        self._happen: dict[int, Callable[[], object]] = {}
        self._sequence = 0
        self._before = deque[Callable[[], object]]()
        self.before_next: Callable[[Callable[[], object]], None] = self._before.append
        self._is_to_stop = self._was_closed = False

    def time(self) -> float:
        """Virtual seconds: exactly the time of the event that happened last."""
        return self.now

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> int:
        """Calls `happen` at `when`, in seconds. What it raises ends the run.

        Returns:
            The event: what `forget` takes.
        """
        self._sequence = event = self._sequence + 1
        self._happen[event] = happen
        heapq.heappush(self._events, (when, order, event))
        return event

    def forget(self, event: int) -> None:
        """An event is not to happen; nothing changes if it has."""
        self._happen.pop(event, None)

    def jump(self, to: float) -> None:
        """Moves the time to `to`; see `VirtualClock.jump`."""
        while self._before:
            self._before.popleft()()
        due = min((when for when, _, event in self._events if event in self._happen), default=to)
        if not self.now <= to <= due:
            raise ValueError(f"time can move from {self.now} to {due} at most, got {to}")
        self.now = to

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, which `call_later` uses too. At equal times timers come before what has an order."""
        handle = _Timer(when, callback, args, self, context)
        event = self.happen_at(when, (), partial(self.call_soon, callback, *args, context=context))
        handle.forget = partial(self.forget, event)
        return handle

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's, which futures and tasks use too."""
        if self._was_closed:
            raise RuntimeError("the loop is closed, nothing can be called on it")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready_to_run.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def stop(self) -> None:
        """As asyncio's."""
        self._is_to_stop = True
        super().stop()

    def close(self) -> None:
        """As asyncio's."""
        super().close()
        self._was_closed = True
        self._ready_to_run.clear()

    def _run_events(self) -> None:
        """Runs what is ready and then lets the next event happen, until the loop is to stop."""
        ready, before, events, happens = self._ready_to_run, self._before, self._events, self._happen
        pop = heapq.heappop
        while True:
            while ready or self._is_to_stop:
                for _ in range(len(ready)):  # what these make ready does not run before a stop, as with asyncio
                    handle = ready.popleft()
                    if not handle._cancelled:
                        handle._run()
                if self._is_to_stop:
                    self._is_to_stop = False
                    return
            while before:
                before.popleft()()
            while events:
                when, _, event = pop(events)
                happen = happens.pop(event, None)
                if happen is not None:
                    self.now = max(self.now, when)
                    happen()
                    break
            else:
                self._deadlock()

    def _deadlock(self) -> NoReturn:
        raise DeadlockError(task.get_name() for task in asyncio.all_tasks(self))


@final
class _JumpingSelector(selectors.BaseSelector):
    """Calls `run` where another selector would wait. It holds what asyncio registers, the loop's own wake-up pipe."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | int | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        self._run()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
