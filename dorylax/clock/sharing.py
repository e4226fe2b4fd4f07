"""Processor sharing: concurrent service of amounts of work, as a pure function of the time.

All jobs of a kind have the same speed. A job is therefore done when its kind has reached a certain progress, regardless of
changes of speed in between: a new or ended job changes two numbers, not all jobs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import final

Speeds = Callable[[Sequence[int]], Sequence[float]]
"""Number of jobs of each kind → units per second of each job of a kind, > 0 for kinds with jobs. A pure function, called
with a tuple after every change."""

Order = tuple[int, ...]

Job = tuple[float, Order, int, int, Callable[[], object]]
"""An amount in service: the progress of its kind at its end, its order, a unique number, its kind, and `served` of
`Sharing.add`. Jobs of a kind end in this order."""


@final
class Sharing:
    """Jobs that share a resource. Times of successive calls never decrease.

    Args:
        speeds: Speeds of jobs.
        kinds: Number of kinds of jobs.
    """

    def __init__(self, speeds: Speeds, kinds: int = 1) -> None:
        self._speeds_of = speeds
        self._speeds: Sequence[float] | None = None  # of the counts; None: unknown
        self._found: tuple[float, Order] | None = None  # end of the next job; None: unknown
        self._next_kind = 0  # kind of that job
        self._way = [0.0] * kinds  # progress of each kind, in units
        self._jobs: list[list[Job]] = [[] for _ in range(kinds)]  # a heap of each kind
        self._now, self._sequence = 0.0, 0

    def add(
        self, now: float, amount: float, kind: int, order: Order, served: Callable[[], object] = lambda: None
    ) -> Job:
        """Start a job.

        Args:
            now: Time in seconds.
            amount: Units (> 0, finite).
            kind: Kind of the job.
            order: Order of jobs that end at the same time, the smallest tuple first.
            served: Kept with the job, for the caller of `finish`.

        Raises:
            ValueError: The amount is out of range.
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
        """Remove a job; return False if it is done or removed already."""
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
        """End and order of the next job, if no other job starts or is removed before; None without jobs."""
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
        """End the next job, at the time of `next`."""
        found = self._found or self.next()
        assert found is not None, "there is no job"
        when, kind = found[0], self._next_kind
        if when != self._now:
            self._pass_to(when)
        jobs = self._jobs[kind]
        job = heapq.heappop(jobs)
        # Exact progress, so that jobs with the same end are done at the same time. Without jobs it restarts at 0, because a
        # long run would lose digits.
        self._way[kind] = job[0] if jobs else 0.0
        self._speeds = self._found = None
        return job

    def _pass_to(self, now: float) -> None:
        passed, self._now = now - self._now, now
        speeds, way = self._speeds or self._speeds_of(tuple(map(len, self._jobs))), self._way
        for kind, jobs in enumerate(self._jobs):
            if jobs:
                way[kind] += passed * speeds[kind]
