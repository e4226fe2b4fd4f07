"""One call of a backend, for the bill and the trace."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dorylax.serverless.task import TaskKey

Outcome = Literal["answered", "late", "failed", "deadline", "throttled"]


class Call(NamedTuple):
    """An attempt of a task, for as long as it held a slot.

    Attributes:
        key: of the task.
        attempt: which repetition of the task it is, from 0.
        start, end: when it held a slot, in seconds on the clock.
        outcome: "answered": its answer is the task's; "late": the answer was no longer needed; "failed"; "deadline": there
            was no answer in time; "throttled": it did not begin, and is not billed.
    """

    key: TaskKey
    attempt: int
    start: float
    end: float
    outcome: Outcome
