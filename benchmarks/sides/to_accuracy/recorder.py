"""How far a run has come: accuracy by seconds and by seconds of cores, of training alone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from harness.processes import below

_TICKS = os.sysconf("SC_CLK_TCK")

PATIENCE = 30
"""Evaluations, at least, after which a run ends that gets no better; it is also half of all that it had."""


class Point(NamedTuple):
    """What a run has after some steps.

    Attributes:
        steps: updates of the parameters.
        seconds: of training.
        core_seconds: of all cores, of training.
        val, test: accuracies.
    """

    steps: int
    seconds: float
    core_seconds: float
    val: float
    test: float


@final
class Recorder:
    """Counts the time of what is inside `training`, and when it is enough.

    Args:
        limit: seconds of training.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._seconds = self._cores = 0.0
        self.points: list[Point] = []

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """What is inside counts."""
        cores, begin = core_seconds(), time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - begin
            self._cores += core_seconds() - cores

    def judge(self, steps: int, accuracies: Callable[[], tuple[float, float]]) -> None:
        """Notes what has been reached, outside all time.

        Args:
            steps: that were made.
            accuracies: gives those of validation and test.
        """
        self.points.append(Point(steps, self._seconds, self._cores, *accuracies()))

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
        values = [point.val for point in self.points]
        waited = len(values) - 1 - values.index(max(values)) if values else 0
        return waited > max(PATIENCE, len(values) / 2)


@final
class SetUp:
    """Seconds, and seconds of cores, from when it is made."""

    def __init__(self) -> None:
        self._cores, self._begin = core_seconds(), time.perf_counter()

    def over(self) -> dict[str, float]:
        """What it took until now."""
        return {"seconds": time.perf_counter() - self._begin, "core_seconds": core_seconds() - self._cores}


def core_seconds() -> float:
    """Of this process and of those that it has started, living or not."""
    used = os.times()
    found = time.process_time() + used.children_user + used.children_system
    for pid in below(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            found += (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def run_record(set_up: dict[str, float], recorder: Recorder) -> dict[str, Any]:
    """A run as plain values."""
    return {"set_up": set_up, "points": [list(point) for point in recorder.points]}
