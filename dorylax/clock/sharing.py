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

Job = tuple[float, Order, int, int, Callable[[], object]]
"""An amount that is being served: the way that its kind will have come at its end, its order, a number of its own, its kind,
and `served` as of `Sharing.add`. Jobs of a kind end in this order."""


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
        self._speeds: Sequence[float] | None = None  # of the counts; None: to be asked for
        self._found: tuple[float, Order] | None = None  # what is done next, if no job has come or gone since
        self._next_kind = 0  # of that
        self._way = [0.0] * kinds  # units that a job of the kind has been served that was there all along
        self._jobs: list[list[Job]] = [[] for _ in range(kinds)]  # a heap of each kind
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
        self._sequence = sequence = self._sequence + 1
        job = (self._way[kind] + amount, order, sequence, kind, served)
        heapq.heappush(self._jobs[kind], job)
        self._speeds = self._found = None
        return job

    def remove(self, now: float, job: Job) -> bool:
        """Gives up a job; False if it is done or given up already."""
        jobs = self._jobs[job[3]]
        if job not in jobs:
            return False
        if now != self._now:
            self._pass_to(now)
        jobs.remove(job)
        heapq.heapify(jobs)
        if not jobs:
            self._way[job[3]] = 0.0
        self._speeds = self._found = None
        return True

    def next(self) -> tuple[float, Order] | None:
        """When the next job is done if none comes or goes before, and its order; None where there is none."""
        if self._found is not None:
            return self._found
        speeds, best = self._speeds, None
        if speeds is None:
            self._speeds = speeds = self._speeds_of(tuple(map(len, self._jobs)))
        for kind, jobs in enumerate(self._jobs):
            if jobs:
                job = jobs[0]
                left = job[0] - self._way[kind]
                found = (self._now + left / speeds[kind] if left > 0 else self._now, job[1])
                if best is None or found < best:
                    best, self._next_kind = found, kind
        self._found = best
        return best

    def finish(self) -> Job:
        """Ends the next job, at the time that `next` has said."""
        found = self._found or self.next()
        assert found is not None, "there is no job"
        when, kind = found[0], self._next_kind
        if when != self._now:
            self._pass_to(when)
        jobs = self._jobs[kind]
        job = heapq.heappop(jobs)
        # Exactly, so that jobs which are done together are done at the same time. With none left, from 0 again: a long run
        # would lose digits; and who begins anew knows nothing of before.
        self._way[kind] = job[0] if jobs else 0.0
        self._speeds = self._found = None
        return job

    def _pass_to(self, now: float) -> None:
        passed, self._now = now - self._now, now
        speeds, way = self._speeds or self._speeds_of(tuple(map(len, self._jobs))), self._way
        for kind, jobs in enumerate(self._jobs):
            if jobs:
                way[kind] += passed * speeds[kind]
