"""Virtual time: tasks compute their real numbers in the loop, and last as long as the caller says.

The order of events depends only on the coroutines, the seconds and the orders: not on the machine, its load, or hash seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar, final

from dorylax.clock.base import Timed, Workers
from dorylax.clock.duration import Duration, Passing, Shared, check_duration
from dorylax.clock.loop_clock import LoopClock
from dorylax.clock.sharing import Speeds
from dorylax.clock.virtual_loop import VirtualLoop

T = TypeVar("T")


@final
class VirtualClock(LoopClock):
    """A clock whose time jumps to the next event once all ready tasks have run.

    Simultaneous events happen by their `order`, then in the sequence of the requests. This clock has neither I/O nor
    threads.

    Args:
        start: Initial time in seconds.
        initializer: Called first in every thread that the clock makes (`Clock.run`), as for `RealClock`.
    """

    kind: Literal["real", "virtual"] = "virtual"

    _loop: VirtualLoop

    def __init__(self, start: float = 0.0, *, initializer: Callable[[], None] | None = None) -> None:
        super().__init__(VirtualLoop(start), initializer)

    def now(self) -> float:
        """See `Clock.now`."""
        return self._loop.now

    def jump(self, to: float) -> None:
        """Move the time forward: a resumed run continues at the time at which it stopped.

        Args:
            to: New time in seconds.

        Raises:
            ValueError: It lies before the present, or an event is due before it.
        """
        self._loop.jump(to)

    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:
        """See `Clock.sleep`."""
        check_duration(seconds)
        await _passed(self._loop, seconds, order)

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:  # noqa: ARG002
        """See `Clock.after`, without a task."""
        check_duration(seconds)
        called = partial(self._unless_closing, call)
        if isinstance(seconds, tuple):
            Passing(seconds, order, self._loop, called)
        else:
            self._loop.happen_at(self._loop.now + seconds, order, called)

    def shared(self, speeds: Speeds, kinds: int = 1) -> Shared:
        """Make a shared resource with so many kinds of uses; for `speeds` see `dorylax.clock.sharing`."""
        return Shared(self._loop, speeds, kinds)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`."""
        return _VirtualWorkers(name, slots, self._loop)

    def _end_workers(self) -> None:
        """There are no threads to end."""


async def _passed(loop: VirtualLoop, duration: Duration, order: tuple[int, ...]) -> None:
    """Wait for a duration."""
    over: asyncio.Future[None] = loop.create_future()
    passing = Passing(duration, order, loop, partial(over.set_result, None))
    try:
        await over
    except BaseException:
        passing.give_up()
        raise


@final
class _VirtualWorkers(Workers):
    """Counts free workers. Work runs at its virtual start."""

    def __init__(self, name: str, slots: int, loop: VirtualLoop) -> None:
        super().__init__(name, slots)
        self._loop = loop
        self._free = asyncio.Semaphore(slots)  # whose waiters none can overtake

    async def run(
        self,
        work: Callable[[], T],
        *,
        seconds: Duration,
        order: tuple[int, ...],
        effort: int | None = None,  # noqa: ARG002
    ) -> Timed[T]:
        check_duration(seconds)
        async with self._free:
            start = self._loop.now
            value = work()
            await _passed(self._loop, seconds, order)
        return Timed(value, start, self._loop.now)

    async def end(self) -> None:
        """See `Workers.end`; there are no threads."""
