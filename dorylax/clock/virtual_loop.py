"""An asyncio loop whose time jumps from event to event and never passes by itself.

asyncio's selector waits for I/O. This loop has none, so its selector runs all ready callbacks, takes the next event, sets
the time to that of the event, runs it, and returns to asyncio only when the loop stops. asyncio's timers (`asyncio.sleep`,
`asyncio.timeout`) are ordinary events.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import NoReturn, TypeVarTuple, final

from dorylax.errors import RunError

Ts = TypeVarTuple("Ts")

_NAMED = 12  # tasks that the text of a deadlock names


@final
class _Timer(asyncio.TimerHandle):
    """The handle of asyncio's `call_at`.

    Attributes:
        forget: Cancels its event.
    """

    __slots__ = ("forget",)

    forget: Callable[[], None]

    def cancel(self) -> None:
        self.forget()
        super().cancel()


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. One event happens at a time, and all callbacks that it makes ready run before the next one.

    It has a separate queue of ready callbacks: an iteration of asyncio's loop takes longer than most callbacks here.

    Args:
        start: Initial time in seconds.

    Attributes:
        now: `time` without a call.
        before_next: Calls a function after all callbacks of this moment, before the next event, in the order of requests.
    """

    def __init__(self, start: float) -> None:
        self._ready_to_run = deque[asyncio.Handle]()
        super().__init__(_JumpingSelector(self._run_events))
        self.now = start
        # Time, order and number of each event; and the functions of events that are not cancelled, by number.
        self._events: list[tuple[float, tuple[int, ...], int]] = []
        self._happen: dict[int, Callable[[], object]] = {}
        self._sequence = 0
        self._before = deque[Callable[[], object]]()
        self.before_next: Callable[[Callable[[], object]], None] = self._before.append
        self._is_to_stop = self._was_closed = False

    def time(self) -> float:
        """Virtual seconds: exactly the time of the last event."""
        return self.now

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> int:
        """Call `happen` at `when`, in seconds; its exceptions end the run.

        Returns:
            The event, for `forget`.
        """
        self._sequence = event = self._sequence + 1
        self._happen[event] = happen
        heapq.heappush(self._events, (when, order, event))
        return event

    def forget(self, event: int) -> None:
        """Cancel an event, unless it has happened."""
        self._happen.pop(event, None)

    def jump(self, to: float) -> None:
        """Move the time to `to`; see `VirtualClock.jump`."""
        while self._before:
            self._before.popleft()()
        due = min((when for when, _, event in self._events if event in self._happen), default=to)
        if not self.now <= to <= due:
            raise ValueError(f"time can move from {self.now} to {due} at most, got {to}")
        self.now = to

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio`; `call_later` uses it too. Timers come before other events of the same time."""
        handle = _Timer(when, callback, args, self, context)
        event = self.happen_at(when, (), partial(self.call_soon, callback, *args, context=context))
        handle.forget = partial(self.forget, event)
        return handle

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio`; futures and tasks use it too."""
        if self._was_closed:
            raise RuntimeError("the loop is closed, nothing can be called on it")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready_to_run.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def stop(self) -> None:
        """See `asyncio`."""
        self._is_to_stop = True
        super().stop()

    def close(self) -> None:
        """See `asyncio`."""
        super().close()
        self._was_closed = True
        self._ready_to_run.clear()

    def _run_events(self) -> None:
        """Run ready callbacks and then the next event, until the loop stops."""
        ready, before, events, happens = self._ready_to_run, self._before, self._events, self._happen
        pop = heapq.heappop
        while True:
            while ready or self._is_to_stop:
                for _ in range(len(ready)):  # new callbacks do not run before a stop, as with asyncio
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
        tasks = sorted(task.get_name() for task in asyncio.all_tasks(self))
        more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
        raise RunError(f"every task waits and no event is left on the virtual clock: {', '.join(tasks[:_NAMED])}{more}")


@final
class _JumpingSelector(selectors.SelectSelector):
    """Calls `run` where another selector would wait. It holds the loop's own wake-up pipe, which asyncio registers."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__()
        self._run = run

    def select(self, timeout: float | int | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        self._run()
        return []
