"""Processor sharing: amounts of work that are served at the same time. Pure: it is told the time.

All jobs of a kind go at one speed, so each is done when its kind has come a certain way, however often the speed changes
in between: a job that comes or goes changes two numbers, not all jobs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import final

Speeds = Callable[[Sequence[int]], Sequence[float]]
"""How many jobs of each kind there are → units per second that each job of a kind is served, > 0 where there are some.
Pure; asked after every change, with a tuple."""

Order = tuple[int, ...]


@final
class Job:
    """An amount that is being served; made by `Sharing.add`.

    Attributes:
        kind: which kind of job it is.
        gone: whether it is done, or given up.
        served: as of `add`.
    """

    __slots__ = ("gone", "kind", "served")

    def __init__(self, kind: int, served: Callable[[], object]) -> None:
        self.kind, self.gone, self.served = kind, False, served


def _nothing() -> None:
    pass


@final
class Sharing:
    """Jobs that share something. Times that it is told never go back.

    Args:
        speeds: who is served how fast.
        kinds: how many kinds of jobs there are.
    """

    def __init__(self, speeds: Speeds, kinds: int = 1) -> None:
        self._speeds_of = speeds
        self._counts = [0] * kinds
        self._speeds: Sequence[float] | None = None  # of the counts; None: to be asked for
        self._found: tuple[float, Order] | None = None  # what is done next, if no job has come or gone since
        self._next_kind = 0  # of that
        self._way = [0.0] * kinds  # units that a job of the kind has been served that was there all along
        # A heap of each kind, by the way that the job's kind will have come at its end.
        self._jobs: list[list[tuple[float, Order, int, Job]]] = [[] for _ in range(kinds)]
        self._now, self._sequence = 0.0, 0

    def add(self, now: float, amount: float, kind: int, order: Order, served: Callable[[], object] = _nothing) -> Job:
        """Begins to serve a job.

        Args:
            now: seconds.
            amount: units, > 0 and finite.
            kind: which kind of job it is.
            order: who goes first where two are done at the same time: the smaller tuple.
            served: kept with the job, for whoever finishes it.

        Raises:
            ValueError: an amount that is none.
        """
        if not 0 < amount < math.inf:
            raise ValueError(f"an amount must be finite and > 0, got {amount}")
        if now != self._now:
            self._pass_to(now)
        job = Job(kind, served)
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._jobs[kind], (self._way[kind] + amount, order, sequence, job))
        self._counts[kind] += 1
        self._speeds = self._found = None
        return job

    def remove(self, now: float, job: Job) -> None:
        """Gives up a job that is not done."""
        if now != self._now:
            self._pass_to(now)
        self._leave(job)

    def next(self) -> tuple[float, Order] | None:
        """When the next job is done if none comes or goes before, and its order; None where there is none."""
        return self._found or self._next()

    def finish(self) -> Job:
        """Ends the next job, at the time that `next` has said."""
        found = self._found or self._next()
        assert found is not None, "there is no job"
        when, kind = found[0], self._next_kind
        if when != self._now:
            self._pass_to(when)
        way, _, _, job = heapq.heappop(self._jobs[kind])
        self._way[kind] = way  # exactly: jobs that are done together are done at the same time
        self._leave(job)
        return job

    def _next(self) -> tuple[float, Order] | None:
        speeds, best = self._speeds or self._ask(), None
        for kind, jobs in enumerate(self._jobs):
            while jobs and jobs[0][3].gone:
                heapq.heappop(jobs)
            if jobs:
                way, order, _, _ = jobs[0]
                left = way - self._way[kind]
                found = (self._now + left / speeds[kind] if left > 0 else self._now, order)
                if best is None or found < best:
                    best, self._next_kind = found, kind
        self._found = best
        return best

    def _ask(self) -> Sequence[float]:
        self._speeds = speeds = self._speeds_of(tuple(self._counts))
        return speeds

    def _pass_to(self, now: float) -> None:
        passed, self._now = now - self._now, now
        speeds, way = self._speeds or self._ask(), self._way
        for kind, count in enumerate(self._counts):
            if count:
                way[kind] += passed * speeds[kind]

    def _leave(self, job: Job) -> None:
        kind = job.kind
        job.gone = True
        self._counts[kind] = left = self._counts[kind] - 1
        if not left:
            self._way[kind] = 0.0  # a long run would lose digits; and who begins anew knows nothing of before
            self._jobs[kind].clear()
        self._speeds = self._found = None
