"""How many calls run at a time, and when the next begins, if the cloud refuses some because there are too many."""

from __future__ import annotations

import random
from typing import final

from dorylax.serverless.task import TaskKey

_DECREASE = 0.7
"""What a refusal leaves of the calls at a time: CUBIC's factor (RFC 9438, section 4.6). A cloud's limit stays the same for
minutes; halving, as TCP once did, would leave more of it unused."""

_INCREASES = 16  # rounds that it takes from nothing to all slots


@final
class Throttle:
    """A limit that follows refusals: lower by a factor with each round that saw one, higher by a constant with each without.

    The calls that begin between two pauses are a round: refusals of one burst say the same thing, and count once. After a
    refusal nothing begins for a while, twice as long as the last time if no call was taken since. The exact time is drawn
    from the refused task's key: other servers, which have other intervals, resume at other moments, and a repeated run
    waits as long.

    Args:
        first: seconds of the first pause, > 0.
        longest: seconds of the longest pause, ≥ `first`.
        patience: seconds of nothing but refusals after which a task should fail, > 0.

    Attributes:
        patience: as given.

    Raises:
        ValueError: a number out of range.

    References:
        Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in computer networks",
        1989: additive increase and multiplicative decrease share a limit fairly among those that do not know each other.
    """

    def __init__(self, *, first: float = 0.2, longest: float = 20.0, patience: float = 300.0) -> None:
        if not 0 < first <= longest:
            raise ValueError(f"pauses of a throttle must be 0 < first ≤ longest seconds, got {first} and {longest}")
        if not patience > 0:
            raise ValueError(f"the patience of a throttle must be > 0 seconds, got {patience}")
        self._first, self._longest, self.patience = first, longest, patience
        self._limit: int | None = None
        self._paused = False
        self._round = 0.0  # when it began
        self._pauses = 0  # since a call was taken
        self._refused: float | None = None  # since when nothing else
        self._taken = 0  # calls since the limit was changed

    @property
    def limit(self) -> int | None:
        """How many calls may run at a time: 0 in a pause; None while nothing is refused."""
        return 0 if self._paused else self._limit

    def refused(self, key: TaskKey, start: float, now: float, running: int) -> float | None:
        """Records a refused call.

        Args:
            key: of its task.
            start: when it began, in the clock's seconds.
            now: the time.
            running: calls that run beside it.

        Returns:
            Seconds for which nothing may begin, until `resume`; None if its round is over already.
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
        """Ends a pause."""
        self._paused, self._round = False, now

    def taken(self, start: float, slots: int) -> bool:
        """Records a call that was not refused.

        Args:
            start: when it began.
            slots: calls that may run at a time while nothing is refused.

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
        """Whether everything has been refused for too long, although no other call runs."""
        return running == 0 and self._refused is not None and now - self._refused >= self.patience
