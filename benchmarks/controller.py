"""What a thousand calls at a time cost the controller: its part of the event loop for each tensor task.

    python benchmarks/controller.py                       # 3 minutes
    python benchmarks/controller.py --tasks 100000 --json controller.json

Sandboxes are simulated: a call sleeps, for a time that is drawn from a log-normal distribution (median 2 s, nine of ten
between 1 and 4 s), and answers. All calls live on one event loop, as in a run, under one controller with 1,000 slots, or
under 8 controllers (of 8 graph servers) with 125 each. All tasks are asked for at once, and each passes through its
controller as it does in training: slots, stragglers, the list of calls for the bill.

- **CPU**: processor time of the loop's thread for each task, asyncio's among it. That is what must be at most 1 ms.
- **bare**: the same for as many sleeps behind a semaphore, without a controller.
- **beyond**: seconds from the first call to the last answer less those of the same calls handed out to the slots by hand,
  for each task. Without what is slow on purpose or refused; those have no such ideal.
- **late**: from when a call should have ended to when whoever asked has its answer. A loop that cannot keep up shows here.
- **events**: calls begun and ended in a second of processor time.

"stragglers": one call in 200 takes ten times as long, and is called again. "throttled": a cloud takes 700 calls at a time
and refuses others, so that controllers have to find out.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dorylax.clock import RealClock
from dorylax.serverless.controller import Call, Controller, SlotLimit, Stragglers
from dorylax.serverless.task import TaskKey, TaskThrottledError, TensorResult, TensorTask
from harness.command_line import parsed, parser_of, write_json

MEDIAN, SIGMA = 2.0, math.log(2.0) / 1.645
SLOW = 10.0  # times as long
LIMIT_MS = 1.0
"""Of CPU and of beyond: what this benchmark is there to hold."""

_COLUMNS = (
    *(("", 14), ("tasks", 7), ("wall s", 7), ("CPU ms", 7), ("bare ms", 7), ("beyond ms", 9), ("late ms, median", 15)),
    *(("p99", 7), ("max", 7), ("events/s", 8), ("again", 6), ("refused", 7)),
)


class Case(NamedTuple):
    """One run: controllers that share the slots, calls that a cloud takes at a time, and how many of them are slow."""

    name: str
    controllers: int
    most: int
    slow: float = 0.0


class Sandboxes:
    """A backend whose calls sleep.

    Args:
        case: of the run.
        scale: by which all times are multiplied.
    """

    def __init__(self, case: Case, scale: float) -> None:
        self._case, self._random, self._scale = case, random.Random(1), scale
        self.running = self.refused = 0
        self.seconds: list[list[float]] = [[] for _ in range(case.controllers)]

    def draw(self) -> float:
        """How long a call takes."""
        seconds = self._random.lognormvariate(math.log(MEDIAN), SIGMA)
        return self._scale * seconds * (SLOW if self._random.random() < self._case.slow else 1.0)

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:  # noqa: ARG002
        """Sleeps."""
        start = time.perf_counter()
        if self.running >= self._case.most:
            self.refused += 1
            await asyncio.sleep(0.01)
            raise TaskThrottledError("Rate Exceeded.")
        self.running += 1
        seconds = self.draw()
        self.seconds[task.key.interval % self._case.controllers].append(seconds)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running -= 1
        return TensorResult((), start, start + seconds)

    async def warm(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class Measured(NamedTuple):
    """What a run took; milliseconds are for each task."""

    name: str
    tasks: int
    wall_s: float
    cpu_ms: float
    bare_ms: float
    beyond_ms: float | None
    late_median_ms: float
    late_p99_ms: float
    late_max_ms: float
    events_per_cpu_s: float
    relaunched: int
    throttled: int


def measure(case: Case, *, tasks: int, slots: int, scale: float) -> Measured:
    """Runs so many tasks."""
    calls: list[Call] = []
    late: list[float] = []
    sandboxes = Sandboxes(case, scale)
    with RealClock() as clock:
        made = [
            Controller(
                sandboxes,
                clock,
                limit=SlotLimit(slots // case.controllers),
                stragglers=Stragglers(),
                attempts=10,
                deadline=None,
                on_call=calls.append,
            )
            for _ in range(case.controllers)
        ]

        async def ask(number: int) -> None:
            result = await made[number % case.controllers].run(_task(number))
            late.append(time.perf_counter() - result.end)

        async def all_tasks() -> tuple[float, float]:
            start, begin = time.perf_counter(), time.thread_time()
            await asyncio.gather(*map(ask, range(tasks)))
            return time.perf_counter() - start, time.thread_time() - begin

        async def drain() -> None:
            await asyncio.gather(*(one.drain() for one in made))

        wall, cpu = clock.run(all_tasks())
        events = 2 * len(calls)
        ideal = max(_ideal(one, slots // case.controllers) for one in sandboxes.seconds)
        clock.run(drain())
        bare = clock.run(_bare(sandboxes, tasks, slots))
    late.sort()
    undisturbed = not case.slow and case.most >= slots
    return Measured(
        name=case.name,
        tasks=tasks,
        wall_s=wall,
        cpu_ms=1000 * cpu / tasks,
        bare_ms=1000 * bare / tasks,
        beyond_ms=1000 * (wall - ideal) / tasks if undisturbed else None,
        late_median_ms=1000 * late[len(late) // 2],
        late_p99_ms=1000 * late[int(0.99 * len(late))],
        late_max_ms=1000 * late[-1],
        events_per_cpu_s=events / cpu,
        relaunched=sum(one.relaunched for one in made),
        throttled=sandboxes.refused,
    )


async def _bare(sandboxes: Sandboxes, tasks: int, slots: int) -> float:
    """Processor seconds of as many sleeps without a controller; they are shorter, since only their number matters."""
    free = asyncio.Semaphore(slots)

    async def one() -> None:
        async with free:
            await asyncio.sleep(sandboxes.draw() / 20)

    begin = time.thread_time()
    await asyncio.gather(*(one() for _ in range(tasks)))
    return time.thread_time() - begin


def _ideal(seconds: Sequence[float], slots: int) -> float:
    """When the last of these calls ends, each begun as soon as one of the slots is free."""
    free = [0.0] * slots
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def _task(number: int) -> TensorTask:
    key = TaskKey(0, number, 3, 0)
    return TensorTask(key, 0, -1, (), (), (), (), count=1, size=1, flops=0, bytes_in=0, bytes_out=0)


def main() -> int:
    """Runs all, prints a table; 1 where the overhead is above what it may be."""
    parser = parser_of(__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=1.0, help="of all times; below 1 there is more to do at a time")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, tasks=200, slots=20, scale=0.01)
    logging.getLogger("dorylax.controller").setLevel(logging.ERROR)
    slots = options.slots
    found: list[Measured] = []
    print(" ".join(f"{title:>{width}}" for title, width in _COLUMNS))
    for case in (
        Case("1 controller", 1, slots),
        Case("8 controllers", 8, slots),
        Case("8, stragglers", 8, slots, slow=1 / 200),
        Case("8, throttled", 8, slots * 7 // 10),
    ):
        found.append(measure(case, tasks=options.tasks, slots=slots, scale=options.scale))
        print(" ".join(_cell(value, width) for value, (_, width) in zip(found[-1], _COLUMNS, strict=True)), flush=True)
    write_json(options.json, {"slots": slots, "scale": options.scale, "runs": [one._asdict() for one in found]})
    above = [one.name for one in found if max(one.cpu_ms, one.beyond_ms or 0.0) > LIMIT_MS]
    if above:
        print(f"more than {LIMIT_MS:g} ms for each task: {', '.join(above)}", file=sys.stderr)
    return int(bool(above) and not options.tiny)


def _cell(value: str | float | None, width: int) -> str:
    if value is None:
        return f"{'-':>{width}}"
    if isinstance(value, float):
        return f"{value:>{width}.3f}" if value < 100 else f"{value:>{width}.0f}"
    return f"{value:>{width}}"


if __name__ == "__main__":
    raise SystemExit(main())
