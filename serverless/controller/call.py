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
        start, end: in seconds on the clock; it held a slot from the one to the other.
        outcome: "answered", its answer is the task's; "late", nobody needed the answer any more; "failed"; "deadline", there
            was no answer in time; "throttled", it was not begun, and nobody bills it.
    """

    key: TaskKey
    attempt: int
    start: float
    end: float
    outcome: Outcome
