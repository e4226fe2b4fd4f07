"""Errors of messages, transfers and tasks."""

from __future__ import annotations

from typing import Literal, final

from dorylax.errors import DorylaxError

FailureReason = Literal["died", "timeout", "refused", "throttled", "failed"]


@final
class WireError(DorylaxError, ValueError):
    """Bytes or a message that violate the format. The text gives the expectation."""


@final
class TaskFailedError(DorylaxError, RuntimeError):
    """A failure of a task, of a call of the handler, or of a transfer; a retry may succeed.

    Attributes:
        reason: "died" for a dead sandbox, "timeout" for a late one, "refused" for a call that did not start, "throttled"
            for one refused because of too many concurrent calls, "failed" for anything else, such as a lost result.
    """

    def __init__(self, text: str, reason: FailureReason = "failed") -> None:
        super().__init__(text)
        self.reason = reason
