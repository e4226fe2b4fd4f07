"""Errors of messages, transfers and tasks, and the log of refused peers and messages."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Literal, final

from dorylax.errors import DorylaxError

FailureReason = Literal["died", "timeout", "refused", "throttled", "failed"]

LOG = logging.getLogger("dorylax.data")


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


@final
class Refusals:
    """Counts refusals, and logs at most `burst` lines per period.

    Args:
        burst: Limit of lines per period.
        seconds: Period in seconds.
        now: Returns the time in seconds.

    Attributes:
        count: Number of all refusals.
    """

    def __init__(self, burst: int = 10, seconds: float = 1.0, now: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._burst, self._seconds, self._now = burst, seconds, now
        self._since = -math.inf
        self._lines = self._hidden = 0

    def add(self, endpoint: str, reason: str) -> None:
        """Record a refusal at an endpoint."""
        self.count += 1
        now = self._now()
        if now - self._since >= self._seconds:
            self._since, self._lines = now, 0
        if self._lines == self._burst:
            self._hidden += 1
            return
        self._lines += 1
        more = f" ({self._hidden} more before were not logged)" if self._hidden else ""
        self._hidden = 0
        LOG.warning("refused at %s: %s%s", endpoint, reason, more)
