"""Which calls of functions find an environment that is warm. Pure: it is told the time."""

from __future__ import annotations

from typing import final


@final
class WarmPool:
    """The environments of a graph server's functions. The one that ran last is used first, so that others may end.

    Args:
        keep_warm: seconds that an environment waits for its next call.
    """

    def __init__(self, keep_warm: float) -> None:
        self._keep_warm = keep_warm
        self._idle: list[float] = []  # since when, ascending

    def begin(self, now: float) -> bool:
        """A call begins.

        Returns:
            Whether its environment has to be made first.
        """
        if self._idle and now - self._idle[-1] <= self._keep_warm:
            self._idle.pop()
            return False
        self._idle.clear()  # all others have waited longer
        return True

    def end(self, now: float) -> None:
        """A call ends; times never go back."""
        self._idle.append(now)

    def state(self) -> list[float]:
        """Since when environments wait, for a checkpoint; no call is running."""
        return list(self._idle)

    def restore(self, state: list[float]) -> None:
        """Goes on from what `state` gave."""
        self._idle = [float(since) for since in state]
