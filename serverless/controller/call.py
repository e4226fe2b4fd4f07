"""Record of one call of a backend, for the bill and the trace."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dorylax.serverless.task import TaskKey

Outcome = Literal["answered", "late", "failed", "deadline", "throttled"]


class Call(NamedTuple):
    """Attempt at a task, over the time in which it held a slot.

    Attributes:
        key: Key of the task.
        attempt: Index of the attempt, from 0.
        start: Time on the clock at which it acquired the slot, in seconds.
        end: Time on the clock at which it released the slot, in seconds.
        outcome: "answered" if its result completed the task, "late" if the result was no longer needed, "failed", "deadline"
            after its time limit, or "throttled" if it did not start, which is not billed.
    """

    key: TaskKey
    attempt: int
    start: float
    end: float
    outcome: Outcome
