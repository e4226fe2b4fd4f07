"""A clock for whatever takes `now` and `sleep`: its time passes only when somebody sleeps, or sets it."""

from __future__ import annotations


class ManualClock:
    """Begins at 0 seconds; `slept` is what was slept."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
