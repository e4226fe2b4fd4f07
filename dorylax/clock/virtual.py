"""Virtual time: tasks compute their real numbers in the loop, and last as long as the caller says.

The order of events depends only on the coroutines, the seconds and the orders: not on the machine, its load, or hash seeds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar, final

from dorylax.clock.base import Timed, Workers, check_slots
from dorylax.clock.duration import Duration, Passing, Shared, check_duration
from dorylax.clock.loop_clock import LoopClock
from dorylax.clock.sharing import Job, Sharing, Speeds
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
        return _VirtualShared(self._loop, speeds, kinds)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`."""
        return _VirtualWorkers(name, slots, self._loop)

    def _end_workers(self) -> None:
        """There are no threads to end."""


@final
class _VirtualShared:
    """A shared resource (`Shared`): `Sharing`, with an event at the end of the next use."""

    def __init__(self, loop: VirtualLoop, speeds: Speeds, kinds: int) -> None:
        self._loop = loop
        self._sharing = Sharing(speeds, kinds)
        # End of the next use, and its event. New uses delay the end: an event that is too early is repeated, which costs
        # less than a cancellation each time.
        self._due: tuple[float, tuple[int, ...]] | None = None
        self._event = 0
        # Whether speeds have changed at this moment; the next use is looked up at its end, after all changes.
        self._changing = False

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Job:
        job = self._sharing.add(self._loop.now, amount, kind, order, served)
        self._change()
        return job

    def give_up(self, use: Job) -> None:
        if self._sharing.remove(self._loop.now, use):
            self._change()

    def _change(self) -> None:
        if not self._changing:
            self._changing = True
            self._loop.before_next(self._expect)

    def _expect(self) -> None:
        """Schedule the end of the next use."""
        self._changing = False
        due, found = self._due, self._sharing.next()
        if due is not None:
            if found is not None and found >= due:
                return
            self._loop.forget(self._event)
        self._due = found
        if found is not None:
            self._event = self._loop.happen_at(*found, self._serve)

    def _serve(self) -> None:
        due, self._due = self._due, None
        if self._sharing.next() != due:
            self._expect()
            return
        served = self._sharing.finish()[-1]
        self._change()
        served()


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
        check_slots(name, slots)
        self.name, self.slots = name, slots
        self._loop = loop
        self._free = slots
        # Waiting requests; futures of cancelled ones are done.
        self._queue: deque[asyncio.Future[None]] = deque()

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
        """See `Workers.end`; there are no threads."""

    def _give_back(self) -> None:
        """Give the worker to the first waiting request, so that none can overtake."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _take(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it got a worker at the moment of the cancellation
                self._give_back()
            raise
