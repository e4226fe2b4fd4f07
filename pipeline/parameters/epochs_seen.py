"""Which (interval, epoch) pairs have been: exactly, in memory that does not grow with the number of epochs."""

from __future__ import annotations

from typing import final


@final
class EpochsSeen:
    """A set of pairs to which epochs of each interval are added nearly in order.

    Args:
        first: all earlier epochs count as seen.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._before: dict[int, int] = {}  # interval -> all epochs before this one are seen
        self._ahead: dict[int, set[int]] = {}

    def __contains__(self, pair: tuple[int, int]) -> bool:
        interval, epoch = pair
        return epoch < self._before.get(interval, self._first) or epoch in self._ahead.get(interval, ())

    def add(self, interval: int, epoch: int) -> None:
        """Adds a pair."""
        ahead = self._ahead.setdefault(interval, set())
        ahead.add(epoch)
        before = self._before.get(interval, self._first)
        while before in ahead:
            ahead.remove(before)
            before += 1
        self._before[interval] = before
