"""Workers that are threads: work goes to one of them and its result back to the loop with as little as possible between.

A pipeline of small tasks hands over thousands of times a second. `loop.run_in_executor` makes two futures each time, with
locks and copies between the two; here there is one, and threads share only the queue. That halves the time of a round trip
(benchmarks/pipeline.py shows what is left).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar, final

from dorylax.clock.base import Timed, Workers, check_slots
from dorylax.clock.duration import Duration, check_duration

T = TypeVar("T")

MOST_IN_LOOP = 1 << 23
"""Operations and bytes: of a millisecond or two, for which messages that come may wait."""

Request = Callable[[BaseException | None], None]
"""What a thread calls for a request, with an error if the thread cannot work."""


@final
class Threads(Workers):
    """At most `slots` threads, started as they are needed, that end with `close` or with the process.

    Requests come from one loop at a time. Where there is one thread, and its process has one core, the loop does what
    takes little itself while the thread has nothing to do: they could only take turns, and to hand over takes as long.

    Args:
        name: of the workers, and what the names of the threads begin with.
        slots: how many threads there are.
        now: the time, in seconds.
        initializer: called first in every thread.
        one_core: whether the process has no more than that.
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
        check_slots(name, slots)
        self._most_in_loop = MOST_IN_LOOP if one_core and slots == 1 else -1
        self.name, self.slots = name, slots
        self._now, self._initializer = now, initializer
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open = 0  # requests that have not been answered; the loop alone counts them

    async def run(
        self,
        work: Callable[[], T],
        *,
        seconds: Duration,
        order: tuple[int, ...],  # noqa: ARG002
        effort: int | None = None,
    ) -> Timed[T]:
        """As `Workers.run`."""
        check_duration(seconds)
        if effort is not None and effort <= self._most_in_loop:
            await asyncio.sleep(0)  # what is to be sent goes first
            if not self._open:
                start = self._now()
                value = work()
                return Timed(value, start, self._now())
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
                    start = self._now()
                    value = work()
                    timed = Timed(value, start, self._now())
            except BaseException as raised:  # it goes to whoever asked
                error = raised
            loop.call_soon_threadsafe(answer, timed, error)

        self._open += 1
        if self._open > len(self._threads) < self.slots:
            self._start()
        self._requests.put(request)
        return await future

    async def end(self) -> None:
        """As `Workers.end`; other tasks go on meanwhile."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Waits for work that has begun and drops the rest."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._requests.get_nowait()
        for _ in self._threads:
            self._requests.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        # As daemons: the process ends even if somebody has forgotten to close the clock.
        name = f"{self.name} {len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        failure: BaseException | None = None
        try:
            if self._initializer is not None:
                self._initializer()
        except BaseException as raised:  # every request of this thread is answered with it
            failure = raised
        request: Request | None
        while (request := self._requests.get()) is not None:
            request(failure)
            del request  # an idle thread keeps nobody's arrays
