"""Offsets of clocks in other processes, estimated from round trips as in NTP.

Every process counts seconds from its start, and machines disagree on the time of day. Each reply contains the host's clock.
The matching local time lies between request and reply, so the shortest round trip gives the best estimate.
"""

from __future__ import annotations

import math
from typing import final

DRIFT = 1e-4
"""Drift between two clocks in seconds per second: 50 ppm each, the worst case of quartz."""


@final
class RemoteClock:
    """Estimate of a host's clock.

    Attributes:
        offset: Seconds to add to the host's times to get local times.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        self._error, self._since = math.inf, 0.0

    def error(self, now: float) -> float:
        """Return the largest error of `offset` in seconds: half its round trip, plus the drift since."""
        return self._error + DRIFT * max(0.0, now - self._since)

    def heard(self, asked: float, there: float, answered: float) -> None:
        """Use a reading if it is more precise than the current estimate.

        Args:
            asked: Local time of the request in seconds.
            there: Time of the host's clock.
            answered: Local time of the reply.
        """
        error = (answered - asked) / 2
        if error <= self.error(answered):
            self.offset, self._error, self._since = (asked + answered) / 2 - there, error, answered
