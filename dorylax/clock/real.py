"""Real time: work runs in threads, with a short way from the loop to a thread and back.

A pipeline of small tasks calls workers thousands of times a second. `loop.run_in_executor` makes two futures per call, with
locks and copies between them. Here a call has one future, and threads share only the queue, which halves the time of a round
trip (benchmarks/pipeline.py measures it).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar, final

from dorylax.clock.base import Timed, Workers
from dorylax.clock.duration import Duration, check_duration
from dorylax.clock.loop_clock import LoopClock

T = TypeVar("T")

MOST_IN_LOOP = 1 << 23
"""Operations and bytes of a millisecond or two, for which incoming messages may wait."""

Request = Callable[[BaseException | None], None]
"""Called by a thread for a request, with an error if the thread cannot work."""


@final
class Threads(Workers):
    """At most `slots` threads, started on demand, that end with `close` or with the process.

    Requests come from one loop at a time. With one thread on one core, the loop runs small tasks itself while the thread is
    idle: the two could only take turns, and a call of the thread takes as long as a small task.

    Args:
        name: Name of the workers, and prefix of the names of the threads.
        slots: Maximum number of threads.
        now: Returns the time in seconds.
        initializer: Called first in every thread.
        one_core: Whether the process has only one core.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        now: Callable[[], float],
        initializer: Callable[[], None] | None = None,
        *,
        one_core: bool = False,
    ) -> None:
        super().__init__(name, slots)
        self._most_in_loop = MOST_IN_LOOP if one_core and slots == 1 else -1
        self._now, self._initializer = now, initializer
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open = 0  # open requests; only the loop counts them

    async def run(
        self,
        work: Callable[[], T],
        *,
        seconds: Duration,
        order: tuple[int, ...],  # noqa: ARG002
        effort: int | None = None,
    ) -> Timed[T]:
        """See `Workers.run`."""
        check_duration(seconds)
        if effort is not None and effort <= self._most_in_loop:
            await asyncio.sleep(0)  # pending messages go first
            if not self._open:
                return self._timed(work)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Timed[T]] = loop.create_future()

        def answer(timed: Timed[T] | None, error: BaseException | None) -> None:
            self._open -= 1
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            elif timed is not None:
                future.set_result(timed)

        def request(error: BaseException | None) -> None:
            timed: Timed[T] | None = None
            try:
                if error is None and not future.cancelled():
                    timed = self._timed(work)
            except BaseException as raised:  # the caller gets it
                error = raised
            loop.call_soon_threadsafe(answer, timed, error)

        self._open += 1
        if self._open > len(self._threads) < self.slots:
            self._start()
        self._requests.put(request)
        return await future

    def _timed(self, work: Callable[[], T]) -> Timed[T]:
        start = self._now()
        value = work()
        return Timed(value, start, self._now())

    async def end(self) -> None:
        """See `Workers.end`; other tasks continue meanwhile."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Wait for work that has started, and drop the rest."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._requests.get_nowait()
        for _ in self._threads:
            self._requests.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        name = f"{self.name} {len(self._threads)}"
        self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))  # ends with the process
        self._threads[-1].start()

    def _serve(self) -> None:
        failure: BaseException | None = None
        try:
            if self._initializer is not None:
                self._initializer()
        except BaseException as raised:  # every request of this thread then fails
            failure = raised
        request: Request | None
        while (request := self._requests.get()) is not None:
            request(failure)
            del request  # so that an idle thread keeps no arrays alive


@final
class RealClock(LoopClock):
    """Seconds since the clock was made, by the machine's monotonic clock.

    Args:
        initializer: Called first in every thread that the clock makes, because threads do not inherit thread-local state.
        one_core: Whether the process has only one core (`Threads`).
    """

    kind: Literal["real", "virtual"] = "real"

    def __init__(self, initializer: Callable[[], None] | None = None, *, one_core: bool = False) -> None:
        super().__init__(asyncio.new_event_loop(), initializer)
        self._origin = time.perf_counter()
        self._one_core = one_core
        self._pools: list[Threads] = []

    def now(self) -> float:
        """See `Clock.now`."""
        return time.perf_counter() - self._origin

    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:  # noqa: ARG002
        """See `Clock.sleep`."""
        if isinstance(seconds, tuple):
            raise TypeError("only the virtual clock knows what is shared: the real one sleeps for seconds")
        check_duration(seconds)
        await asyncio.sleep(seconds)

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:
        """See `Clock.after`; calls without delay need no task."""
        if seconds == 0.0 and not self._loop.is_closed():
            self._loop.call_soon(self._unless_closing, call)
        else:
            super().after(seconds, order, call, name=name)

    def workers(self, name: str, slots: int) -> Workers:
        """See `Clock.workers`."""
        threads = Threads(name, slots, self.now, self._initializer, one_core=self._one_core)
        self._pools.append(threads)
        return threads

    def _end_workers(self) -> None:
        for pool in self._pools:
            pool.close()
