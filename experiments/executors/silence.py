"""When a process that says nothing any more is taken to hang: only this decides, without a clock, a cluster or a process."""

from __future__ import annotations

from typing import final


@final
class Silence:
    """How long nothing has been heard of a process elsewhere, and what was found when it was looked at.

    A process may compute for minutes without saying anything, where a library holds Python's lock. So one that is silent is
    looked at. It hangs if it has used no CPU time from one look to the next.

    Args:
        now: seconds from any origin, here and everywhere.
        limit: seconds of silence before a look, between looks, and for a look to be answered.
    """

    def __init__(self, now: float, limit: float) -> None:
        self._since, self._limit = now, limit
        self._looking = False
        self._used: float | None = None

    def broken(self, now: float) -> None:
        """The process has said something."""
        self._since, self._used = now, None

    def asks_for_a_look(self, now: float) -> bool:
        """Whether it is to be looked at now; if so, that look has begun."""
        if self._looking or now - self._since < self._limit:
            return False
        self._looking, self._since = True, now
        return True

    def unanswered(self, now: float) -> bool:
        """Whether a look has begun and not been answered for too long, and nothing else was heard either."""
        return self._looking and now - self._since >= self._limit

    def hangs(self, now: float, used: float | None) -> bool:
        """The answer to a look.

        Args:
            now: when it came.
            used: seconds of CPU time of the process so far; None: there is no such process.

        Returns:
            Whether it hangs, or is gone.
        """
        hangs = used is None or used == self._used
        self._looking, self._since, self._used = False, now, used
        return hangs
