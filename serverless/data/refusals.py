"""Logs refusals at a limited rate."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import final

_LOG = logging.getLogger("dorylax.data")


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
        self._burst = burst
        self._seconds = seconds
        self._now = now
        self._since = -math.inf
        self._lines = 0
        self._hidden = 0

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
        _LOG.warning("refused at %s: %s%s", endpoint, reason, more)
