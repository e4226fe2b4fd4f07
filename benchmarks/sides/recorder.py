"""How far a run has come: accuracy by seconds and by seconds of cores, of training alone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from harness.measure import below, cpu_seconds

HIDDEN = 128
PATIENCE = 30
"""Evaluations, at least, after which a run ends that gets no better; it is also half of all that it had."""

Settings = Mapping[str, Any]


def now() -> tuple[float, float]:
    """The time, and seconds of cores of this process and of those that it has started, living or not."""
    used = os.times()
    cores = time.process_time() + used.children_user + used.children_system + cpu_seconds(below(os.getpid()))
    return time.perf_counter(), cores


@final
class Recorder:
    """Counts set-up, from when it is made, and the time inside `training`; says when a run has trained enough.

    Args:
        limit: Seconds of training.
    """

    def __init__(self, limit: float) -> None:
        self._limit, self._begin = limit, now()
        self._seconds = self._cores = 0.0
        self.set_up: tuple[float, float] | None = None
        self.points: list[tuple[int, float, float, float, float]] = []

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Counts the time inside; set-up is over when it is entered first."""
        begin, cores = now()
        if self.set_up is None:
            self.set_up = begin - self._begin[0], cores - self._begin[1]
        try:
            yield
        finally:
            end = now()
            self._seconds, self._cores = self._seconds + end[0] - begin, self._cores + end[1] - cores

    def judge(self, steps: int, accuracies: Callable[[], tuple[float, float]]) -> None:
        """Notes accuracies of validation and test after so many steps, outside all time."""
        self.points.append((steps, self._seconds, self._cores, *accuracies()))

    @property
    def enough(self) -> bool:
        """Whether the time is over, or half of it and the best accuracy has been long ago.

        Half, because some have a plateau before they learn anything, and a side that is judged four times an epoch would
        use up its evaluations there.
        """
        if self._seconds < self._limit / 2:
            return False
        if self._seconds >= self._limit:
            return True
        values = [point[3] for point in self.points]
        waited = len(values) - 1 - values.index(max(values)) if values else 0
        return waited > max(PATIENCE, len(values) / 2)

    def record(self) -> dict[str, Any]:
        """The run as plain values."""
        return {"set_up": self.set_up, "points": self.points}
