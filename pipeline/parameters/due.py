"""Which gradients a version contains: of each interval, all before the epoch that is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from dorylax.pipeline.parameters.messages import Update


@final
class Due:
    """The epoch of each interval's first gradient that is not in the newest version.

    Args:
        closed: no interval is due before this epoch.
        ahead: of intervals that are due later, by their number.

    Attributes:
        closed: as given; later, the first epoch that no update has closed.
    """

    def __init__(self, closed: int, ahead: Mapping[int, int] | None = None) -> None:
        self.closed = closed
        self._ahead = dict(ahead or {})

    def add(self, update: Update) -> None:
        """Notes that an update is in the version; updates come in order."""
        if not update.pairs:
            self.closed = update.epoch + 1
            self._ahead = {interval: epoch for interval, epoch in self._ahead.items() if epoch > self.closed}
        for interval, epoch in update.pairs:
            self._ahead[interval] = epoch + 1

    def of(self, num_intervals: int) -> list[int]:
        """All of them."""
        return [max(self.closed, self._ahead.get(interval, self.closed)) for interval in range(num_intervals)]
