"""Virtual time: every task computes its real numbers, in the loop, but takes the time that it is said to take.

The order of events follows only from the coroutines, the seconds and the orders: not from the machine, its load, or hash
seeds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Literal, TypeVar, final

from dorylax.clock.base import Clock, Timed, Workers, check_slots
from dorylax.clock.duration import Duration, Passing, Shared, check_duration
from dorylax.clock.shared import VirtualShared
from dorylax.clock.sharing import Speeds
from dorylax.clock.task_loop import TaskLoop
from dorylax.clock.virtual_loop import VirtualLoop

T = TypeVar("T")


@final
class VirtualClock(Clock):
    """A clock whose time jumps to the next event, without waiting, when nothing is left to do.

    Events at the same time happen by their `order`, then in the sequence in which they were asked for. This clock has no
    I/O and no threads.

    Args:
        start: the time it begins with, in seconds.
        initializer: called first in every thread that the clock makes (`Clock.run`), as for `RealClock`.
    """

    kind: Literal["real", "virtual"] = "virtual"

    def __init__(self, start: float = 0.0, *, initializer: Callable[[], None] | None = None) -> None:
        self._loop = VirtualLoop(start)
        self._tasks = TaskLoop(self._loop, initializer)

    def now(self) -> float:
        """As `Clock.now`."""
        return self._loop.now

    def jump(self, to: float) -> None:
        """Moves the time, if nothing is due before: a resumed run continues at the time at which it stopped.

        Args:
            to: the new time, in seconds, not before the present.

        Raises:
            ValueError: it lies before the present, or something is due before it.
        """
        self._loop.jump(to)

    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:
        """As `Clock.sleep`."""
        check_duration(seconds)
        await _passed(self._loop, seconds, order)

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:  # noqa: ARG002
        """As `Clock.after`, without a task."""
        check_duration(seconds)
        Passing(seconds, order, self._loop, call)

    def shared(self, speeds: Speeds, kinds: int = 1) -> Shared:
        """Something that tasks share from now on.

        Args:
            speeds: who is served how fast; see `dorylax.clock.sharing`.
            kinds: how many kinds of uses there are.
        """
        return VirtualShared(self._loop, speeds, kinds)

    def workers(self, name: str, slots: int) -> Workers:
        """As `Clock.workers`."""
        return _VirtualWorkers(name, slots, self._loop)

    def run(self, awaitable: Awaitable[T]) -> T:
        """As `Clock.run`."""
        return self._tasks.run(awaitable)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """As `Clock.spawn`."""
        return self._tasks.spawn(coroutine, name)

    def close(self) -> None:
        """As `Clock.close`."""
        self._tasks.close(end_workers=lambda: None)


async def _passed(loop: VirtualLoop, duration: Duration, order: tuple[int, ...]) -> None:
    """Waits for as long as something takes."""
    over: asyncio.Future[None] = loop.create_future()
    passing = Passing(duration, order, loop, partial(over.set_result, None))
    try:
        await over
    except BaseException:
        passing.give_up()
        raise


@final
class _VirtualWorkers(Workers):
    """Counts free workers. The work is done at its virtual start."""

    def __init__(self, name: str, slots: int, loop: VirtualLoop) -> None:
        check_slots(name, slots)
        self.name, self.slots = name, slots
        self._loop = loop
        self._free = slots
        self._queue: deque[asyncio.Future[None]] = deque()  # of those who wait; done if cancelled

    async def run(
        self,
        work: Callable[[], T],
        *,
        seconds: Duration,
        order: tuple[int, ...],
        effort: int | None = None,  # noqa: ARG002
    ) -> Timed[T]:
        check_duration(seconds)
        await self._take()
        try:
            start = self._loop.now
            value = work()
            await _passed(self._loop, seconds, order)
        finally:
            self._give_back()
        return Timed(value, start, self._loop.now)

    async def end(self) -> None:
        """As `Workers.end`: nothing is left of those who were cancelled."""

    async def _take(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed a worker at the moment it was cancelled
                self._give_back()
            raise

    def _give_back(self) -> None:
        """Hands the worker to the first who waits, so that nobody can overtake."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
