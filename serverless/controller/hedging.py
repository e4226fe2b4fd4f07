"""Hedged requests: duplicate a call that is slower than most recent calls of its stage. The first result counts."""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import final

from dorylax.serverless.task import TensorResult, TensorTask

_GAIN = 1.25
"""Minimum threshold as a multiple of the median. Hedging does not help calls of nearly equal duration."""


@final
class Hedging:
    """Latency threshold and hedging budget for each stage.

    The threshold is a quantile of the stage's recent latencies, so it adapts when calls become slower or faster. If all
    calls slow down together, duplicates would make them even slower. The budget therefore limits hedged requests to twice
    the expected share.

    Args:
        quantile: Quantile of recent latencies that a call must exceed, in (0, 1).
        window: Number of recent calls per stage, ≥ 1 / (1 − quantile), the minimum for a meaningful quantile.

    Raises:
        ValueError: If a number is out of range.

    References:
        Dean and Barroso, "The tail at scale", CACM 2013: hedged requests after the 95th percentile.
    """

    def __init__(self, *, quantile: float = 0.95, window: int = 200) -> None:
        if not 0 < quantile < 1:
            raise ValueError(f"the quantile of hedging must be > 0 and < 1, got {quantile}")
        self._quantile, self._window = quantile, window
        self._least = math.ceil(round(1 / (1 - quantile), 6))
        if window < self._least:
            raise ValueError(f"the window of hedging must be ≥ {self._least} calls, got {window}")
        self._share = 2 * (1 - quantile)
        self._stages: dict[int, _Recent] = {}

    def observe(self, stage: int, start: float, end: float) -> None:
        """Record a successful call. Calls that start before the stage's first result are cold starts and do not count.

        Args:
            stage: Number of the stage in the program.
            start: Start of the call in seconds.
            end: End of the call in seconds, ≥ start.

        Raises:
            ValueError: If the duration is negative or not finite.
        """
        if not 0 <= (seconds := end - start) < math.inf:
            raise ValueError(f"seconds of a call must be finite and ≥ 0, got {seconds}")
        recent = self._stages.setdefault(stage, _Recent(since=end))
        if start < recent.since:
            return
        if len(recent.order) == self._window:
            del recent.ascending[bisect.bisect_left(recent.ascending, recent.order.popleft())]
        recent.order.append(seconds)
        bisect.insort(recent.ascending, seconds)
        recent.budget = min(recent.budget + self._share, self._share * self._window)

    def threshold(self, stage: int) -> float | None:
        """Return the threshold in seconds, or None after too few calls or if calls take zero time."""
        recent = self._stages.get(stage)
        if recent is None or len(recent.order) < self._least:
            return None
        count = len(recent.ascending)
        late = recent.ascending[math.ceil(self._quantile * count) - 1]
        return max(late, _GAIN * recent.ascending[(count - 1) // 2]) or None

    def spend(self, stage: int) -> bool:
        """Spend one hedged request from a stage's budget. Returns False if the budget is exhausted."""
        recent = self._stages.get(stage)
        if recent is None or recent.budget < 1:
            return False
        recent.budget -= 1
        return True

    def state(self) -> dict[str, tuple[float, list[float]]]:
        """Return each stage's budget and recent latencies in seconds, for a checkpoint."""
        return {str(stage): (recent.budget, list(recent.order)) for stage, recent in self._stages.items()}

    def restore(self, state: Mapping[str, Sequence[float | list[float]]]) -> None:
        """Restore a state returned by `state`, replacing all observations."""
        self._stages = {
            int(stage): _Recent(deque(seconds), sorted(seconds), float(budget))  # type: ignore[arg-type]
            for stage, (budget, seconds) in state.items()
        }


@dataclasses.dataclass(slots=True)
class _Recent:
    """Recent calls of a stage.

    Attributes:
        order: Latencies in seconds, the oldest first.
        ascending: Sorted latencies.
        budget: Remaining hedged requests, possibly fractional.
        since: Time of the first result.
    """

    order: deque[float] = dataclasses.field(default_factory=deque)
    ascending: list[float] = dataclasses.field(default_factory=list)
    budget: float = 0.0
    since: float = -math.inf


@final
@dataclasses.dataclass(eq=False, slots=True)
class HedgedTask:
    """A task and its competing attempts.

    Attributes:
        task: Tensor task.
        outcome: Future of the result or the final exception.
        begun: Number of started attempts.
        failures: Number of failed attempts.
        relaunches: Number of hedged requests, without throttled ones.
        live: Running attempts, with or without a slot.
        asking: Pending acquisition of a slot for the next attempt, or None.
    """

    task: TensorTask
    outcome: asyncio.Future[TensorResult | Exception]
    begun: int = 0
    failures: int = 0
    relaunches: int = 0
    live: dict[Attempt, None] = dataclasses.field(default_factory=dict)
    asking: asyncio.Task[None] | None = None

    @property
    def holds_slots(self) -> bool:
        """Whether an attempt holds a slot."""
        return any(attempt.holds_slot for attempt in self.live)

    def settle(self, outcome: TensorResult | Exception) -> None:
        """Set the outcome unless it is already set."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
            self.give_up_asking()

    def give_up_asking(self) -> None:
        """Leave the queue for a slot."""
        if self.asking is not None:
            self.asking.cancel()
            self.asking = None


@final
@dataclasses.dataclass(eq=False, slots=True)
class Attempt:
    """One call of the backend. It starts with a slot.

    Attributes:
        hedged: Task of the attempt.
        number: Index of the attempt within the task, from 0.
        start: Start time on the clock in seconds.
        call: asyncio task of the call.
        relaunch: Whether the attempt is a hedged request.
        holds_slot: Whether the attempt still holds its slot.
    """

    hedged: HedgedTask
    number: int
    start: float
    call: asyncio.Task[TensorResult | Exception]
    relaunch: bool
    holds_slot: bool = True
