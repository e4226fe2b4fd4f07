"""A task and its attempts: what the controller knows of each, and the one answer."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import final

from dorylax.serverless.task import TensorResult, TensorTask


@final
@dataclasses.dataclass(eq=False, slots=True)
class Race:
    """A task and the attempts that compete to answer it.

    Attributes:
        task: which one.
        outcome: the answer, or what is raised instead.
        begun: how many attempts have been begun.
        failures: how many of them have failed.
        relaunches: how many of them were begun beside a straggler, without those that were throttled.
        live: attempts that have not ended, whether they hold a slot or not.
        asking: waits for the slot of the next one.
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
        """Whether an attempt holds one."""
        return any(attempt.holds_slot for attempt in self.live)

    def settle(self, outcome: TensorResult | Exception) -> None:
        """Gives an outcome, if it is the first."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
            self.give_up_asking()

    def give_up_asking(self) -> None:
        """Leaves the queue for a slot."""
        if self.asking is not None:
            self.asking.cancel()
            self.asking = None


@final
@dataclasses.dataclass(eq=False, slots=True)
class Attempt:
    """One call of the backend; it begins with a slot.

    Attributes:
        race: of which task.
        number: which of its attempts, from 0.
        start: when it began, in seconds on the clock.
        call: it.
        relaunch: whether it was begun beside a straggler.
        holds_slot: whether it still has its slot.
    """

    race: Race
    number: int
    start: float
    call: asyncio.Task[TensorResult | Exception]
    relaunch: bool
    holds_slot: bool = True
