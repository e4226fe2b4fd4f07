"""Throttling policy: the limit of concurrent calls and the pauses after the cloud refuses calls."""

from __future__ import annotations

import random
from typing import final

from dorylax.serverless.task import TaskKey

_DECREASE = 0.7
"""Multiplicative decrease of the limit after a refusal: CUBIC's factor (RFC 9438, section 4.6). A cloud's limit is stable
for minutes, so halving, as in older TCP, would waste more of it."""

_INCREASES = 16  # rounds without refusals from zero to all slots


@final
class Throttle:
    """Additive-increase, multiplicative-decrease limit of concurrent calls, with exponential backoff.

    A round consists of the calls that start between two pauses. Its first refusal lowers the limit and starts a pause;
    further refusals of the same burst have no effect. A round without refusals raises the limit by a constant.

    Consecutive pauses double in length until a call is accepted. The task's key seeds the jitter: servers with different
    intervals resume at different times, and a repeated run pauses equally long.

    Args:
        first: Length of the first pause in seconds, > 0.
        longest: Maximum length of a pause in seconds, ≥ `first`.
        patience: Seconds of uninterrupted refusals after which a task fails, > 0.

    Raises:
        ValueError: If a number is out of range.

    References:
        Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in computer networks",
        1989: additive increase and multiplicative decrease divide a limit fairly among independent clients.
    """

    def __init__(self, *, first: float = 0.2, longest: float = 20.0, patience: float = 300.0) -> None:
        if not 0 < first <= longest:
            raise ValueError(f"pauses of a throttle must be 0 < first ≤ longest seconds, got {first} and {longest}")
        if not patience > 0:
            raise ValueError(f"the patience of a throttle must be > 0 seconds, got {patience}")
        self._first, self._longest, self.patience = first, longest, patience
        self._limit: int | None = None
        self._paused = False
        self._round = 0.0  # start time of the round
        self._pauses = 0  # number of pauses since the last accepted call
        self._refused: float | None = None  # start time of uninterrupted refusals
        self._taken = 0  # number of accepted calls since the last change of the limit

    @property
    def limit(self) -> int | None:
        """Maximum number of concurrent calls: 0 in a pause, None if no limit applies."""
        return 0 if self._paused else self._limit

    def refused(self, key: TaskKey, start: float, now: float, running: int) -> float | None:
        """Record a refused call.

        Args:
            key: Key of its task.
            start: Start time of the call in seconds.
            now: Current time in seconds.
            running: Number of other running calls.

        Returns:
            Length of the pause in seconds, which ends with `resume`; None if the call's round is already over.
        """
        if self._paused or start < self._round:
            return None
        if self._refused is None:
            self._refused = now
        self._limit = max(1, int(_DECREASE * (running + 1)))
        self._paused, self._taken = True, 0
        longest = min(self._longest, self._first * 2.0 ** min(self._pauses, 64))
        self._pauses += 1
        return longest * random.Random(f"{tuple(key)} {self._pauses}").uniform(0.5, 1.0)

    def resume(self, now: float) -> None:
        """End the pause and start a new round."""
        self._paused, self._round = False, now

    def taken(self, start: float, slots: int) -> bool:
        """Record an accepted call.

        Args:
            start: Start time of the call in seconds.
            slots: Maximum number of concurrent calls without throttling.

        Returns:
            Whether the limit has changed.
        """
        if self._limit is None or self._paused or start < self._round:
            return False
        self._refused, self._pauses = None, 0
        self._taken += 1
        if self._taken < self._limit:
            return False
        self._taken = 0
        limit = self._limit + max(1, slots // _INCREASES)
        self._limit = limit if limit < slots else None
        return True

    def hopeless(self, now: float, running: int) -> bool:
        """Return whether all calls have been refused for `patience` seconds while no other call is running."""
        return running == 0 and self._refused is not None and now - self._refused >= self.patience
