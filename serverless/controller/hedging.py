"""Hedged requests: a call that takes longer than most recent calls of its stage is repeated; the first answer counts."""

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
"""Least threshold, as a multiple of the median: calls that take about equally long gain nothing from a second one."""


@final
class Hedging:
    """The threshold above which a call is repeated, per stage, and a budget for the repetitions.

    The threshold is a quantile of the stage's own last calls, so it follows a run whose calls become slower or faster. If
    all calls become slow at once, repeating them all would make them slower: the budget allows twice the expected share.

    Args:
        quantile: Share of the recent calls that a call must exceed, in (0, 1).
        window: Recent calls of a stage that are remembered, ≥ 1 / (1 − quantile), below which a quantile says nothing.

    Raises:
        ValueError: A number out of range.

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
        """Record a call that was answered. Calls that begin before a stage's first answer are cold starts: not counted.

        Args:
            stage: Number of the task in the program.
            start: Time at which the call began, in seconds.
            end: Time of its answer, ≥ start.

        Raises:
            ValueError: The duration is negative or not finite.
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
        """Return the seconds after which a call is late; None if too few calls are known, or calls take no time."""
        recent = self._stages.get(stage)
        if recent is None or len(recent.order) < self._least:
            return None
        count = len(recent.ascending)
        late = recent.ascending[math.ceil(self._quantile * count) - 1]
        return max(late, _GAIN * recent.ascending[(count - 1) // 2]) or None

    def spend(self, stage: int) -> bool:
        """Take one repetition from the budget of a stage; False if none is left."""
        recent = self._stages.get(stage)
        if recent is None or recent.budget < 1:
            return False
        recent.budget -= 1
        return True

    def state(self) -> dict[str, tuple[float, list[float]]]:
        """Return the budget and the recent seconds of each stage, for a checkpoint."""
        return {str(stage): (recent.budget, list(recent.order)) for stage, recent in self._stages.items()}

    def restore(self, state: Mapping[str, Sequence[float | list[float]]]) -> None:
        """Continue from a `state`; forget all that has been observed since."""
        self._stages = {
            int(stage): _Recent(deque(seconds), sorted(seconds), float(budget))  # type: ignore[arg-type]
            for stage, (budget, seconds) in state.items()
        }


@dataclasses.dataclass(slots=True)
class _Recent:
    """Recent calls of a stage.

    Attributes:
        order: Their seconds, the oldest first.
        ascending: The same, sorted.
        budget: Repetitions that may begin.
        since: Time of the first answer.
    """

    order: deque[float] = dataclasses.field(default_factory=deque)
    ascending: list[float] = dataclasses.field(default_factory=list)
    budget: float = 0.0
    since: float = -math.inf


@final
@dataclasses.dataclass(eq=False, slots=True)
class HedgedTask:
    """A task and the attempts that compete to answer it.

    Attributes:
        task: The task.
        outcome: Its answer, or the exception in its place.
        begun: Number of attempts that have begun.
        failures: Number of attempts that have failed.
        relaunches: Number of attempts that began beside a late one, without throttled ones.
        live: Attempts that have not ended, whether they hold a slot or not.
        asking: Waits for the slot of the next attempt.
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
        """Set the outcome, if there is none yet."""
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
    """One call of the backend; it begins with a slot.

    Attributes:
        hedged: The task and its other attempts.
        number: Number among the attempts of the task, from 0.
        start: Time at which it began, in seconds on the clock.
        call: The call.
        relaunch: Whether it began beside a late attempt.
        holds_slot: Whether it still has its slot.
    """

    hedged: HedgedTask
    number: int
    start: float
    call: asyncio.Task[TensorResult | Exception]
    relaunch: bool
    holds_slot: bool = True
