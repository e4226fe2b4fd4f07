"""The clock of another process, read from here: by round trips, as NTP does.

Every process counts from its own start, and machines disagree on the time of day. A host tells its clock in each answer; the
truth lies between what the clock here showed when it was asked and when the answer came. The shortest round trip says most.
"""

from __future__ import annotations

import math
from typing import final

DRIFT = 1e-4
"""Seconds by which two clocks may run apart each second: 50 millionths each, as quartz at its worst."""


@final
class RemoteClock:
    """What is known here of a host's clock.

    Attributes:
        offset: seconds to add to its times to have those of the clock here.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        self._error, self._since = math.inf, 0.0

    def error(self, now: float) -> float:
        """By how many seconds `offset` may be wrong now: half the round trip that gave it, and the drift since."""
        return self._error + DRIFT * max(0.0, now - self._since)

    def heard(self, asked: float, there: float, answered: float) -> None:
        """Takes a reading, if it says more than what is known.

        Args:
            asked: what the clock here showed before, in seconds.
            there: the host's clock.
            answered: what the clock here showed after.
        """
        error = (answered - asked) / 2
        if error <= self.error(answered):
            self.offset, self._error, self._since = (asked + answered) / 2 - there, error, answered
