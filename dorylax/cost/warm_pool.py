"""Warm environments of functions, as pure functions of the time."""

from __future__ import annotations

from typing import final


@final
class WarmPool:
    """The environments of a graph server's functions. The last used one is used first, so that others may end.

    Args:
        keep_warm: Seconds that an idle environment is kept.
    """

    def __init__(self, keep_warm: float) -> None:
        self._keep_warm = keep_warm
        self._idle: list[float] = []  # since when, ascending

    def begin(self, now: float) -> bool:
        """Begin a call; return whether it starts a new environment."""
        if self._idle and now - self._idle[-1] <= self._keep_warm:
            self._idle.pop()
            return False
        self._idle.clear()  # all others have waited longer
        return True

    def end(self, now: float) -> None:
        """End a call; times are monotonic."""
        self._idle.append(now)

    def state(self) -> list[float]:
        """Times since which environments are idle, for a checkpoint between calls."""
        return list(self._idle)

    def restore(self, state: list[float]) -> None:
        """Restore the result of `state`."""
        self._idle = [float(since) for since in state]
