"""A backend that does what a script says, per task and attempt, and what it takes to ask a controller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax.clock import Clock, VirtualClock
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.controller import Call, Controller, Hedging, SlotLimit, Throttle
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask


class Act(NamedTuple):
    """What an attempt does after some seconds. `stop` raises CancelledError although nobody has cancelled."""

    what: Literal["answer", "fail", "throttle", "break", "never", "stop"]
    seconds: float = 1.0


def task(interval: int, stage: int = 3) -> TensorTask:
    key = TaskKey(0, interval, stage, 0)
    rows = np.full(2, interval, np.float32)
    return TensorTask(key, 0, -1, (), (rows,), (), (), count=2, size=2, flops=0, bytes_in=0, bytes_out=0)


class Scripted:
    """Answers with the attempt's number, so that tests see whose answer counted.

    Args:
        clock: on which attempts take their seconds.
        script: by interval, what each attempt does; what is not in it answers after 1 second.
        limit: of which every attempt must have a slot when it begins.
    """

    def __init__(self, clock: Clock, script: Mapping[int, Sequence[Act]], limit: SlotLimit) -> None:
        self._clock, self._script, self._limit = clock, script, limit
        self.begun: list[tuple[int, int]] = []
        self.cancelled: list[tuple[int, int]] = []
        self.tasks: list[TensorTask] = []

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        assert self._limit.taken > 0, "an attempt has begun without a slot"
        call = task.key.interval, attempt
        self.begun.append(call)
        self.tasks.append(task)
        acts = self._script.get(task.key.interval, ())
        act = acts[attempt] if attempt < len(acts) else Act("answer")
        start = self._clock.now()
        try:
            if act.what == "never":
                await asyncio.get_running_loop().create_future()
            await self._clock.sleep(act.seconds, (*task.key, attempt))
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        if act.what == "fail":
            raise TaskFailedError(f"worker {attempt} died")
        if act.what == "throttle":
            raise TaskFailedError(f"attempt {attempt} is one too many", "throttled")
        if act.what == "break":
            raise ValueError(f"stage broke in attempt {attempt}")
        if act.what == "stop":
            raise asyncio.CancelledError
        return TensorResult((task.key.interval, attempt), start, self._clock.now())

    async def warm(self) -> None: ...

    def close(self) -> None: ...


class Asked:
    """A controller over a scripted backend, and all the calls it reports; with a threshold in seconds, or hedging."""

    def __init__(
        self,
        clock: Clock,
        script: Mapping[int, Sequence[Act]],
        *,
        slots: int = 4,
        threshold: float | None = None,
        hedging: Hedging | None = None,
        relaunches: int = 1,
        attempts: int = 3,
        deadline: float | None = None,
        on_call: Callable[[Call], None] | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.limit = SlotLimit(slots)
        self.backend = Scripted(clock, script, self.limit)
        self.controller = Controller(
            self.backend,
            clock,
            limit=self.limit,
            hedging=hedging if threshold is None else known(threshold),
            relaunches=relaunches,
            attempts=attempts,
            deadline=deadline,
            on_call=on_call or self.calls.append,
            throttle=throttle,
        )

    async def run(self, *intervals: int) -> list[Any]:
        """What becomes of tasks that come at once, in order: whose answer it was, or an exception."""
        found = await asyncio.gather(*(self.controller.run(task(k)) for k in intervals), return_exceptions=True)
        return [one.values if isinstance(one, TensorResult) else one for one in found]

    def play(self, *intervals: int) -> list[Any]:
        """Runs tasks to their end."""
        return self.clock.run(self.run(*intervals))

    def drain(self) -> None:
        """Runs whatever goes on in the background to its end."""
        self.clock.run(self.controller.drain())

    @property
    def outcomes(self) -> list[tuple[int, int, float, float, str]]:
        """Interval, attempt, start, end, outcome of each call, as they were reported."""
        return [(call.key.interval, call.attempt, call.start, call.end, call.outcome) for call in self.calls]


@contextlib.contextmanager
def asking(script: Mapping[int, Sequence[Act]], **options: Any) -> Iterator[Asked]:
    """A controller on a virtual clock, which is closed at the end."""
    with VirtualClock() as clock:
        yield Asked(clock, script, **options)


def known(threshold: float) -> Hedging:
    """Hedging that knows the threshold of stage 3 from the beginning, and keeps it for hundreds of calls."""
    hedging = Hedging(window=2000)
    hedging.restore({"3": (1000.0, [0.0] * 1200 + [threshold] * 800)})
    return hedging
