"""One step per complete gradient, as it arrives."""

from __future__ import annotations

from collections import Counter
from typing import final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.policy.base import DueStep


@final
class PerInterval:
    """Makes a step of each complete gradient.

    Args:
        num_intervals: K.
        scaling: K steps move as far as one step with the sum of K gradients would.
    """

    waiting = 0

    def __init__(self, num_intervals: int, *, scaling: bool = True) -> None:
        self._num_intervals, self._factor = num_intervals, num_intervals if scaling else 1
        self._come: Counter[int] = Counter()  # gradients by epoch, of epochs that are not whole

    def add(self, interval: int, epoch: int, complete: Complete) -> list[DueStep]:
        """See `UpdatePolicy`."""
        self._come[epoch] += 1
        closes_epoch = self._come[epoch] == self._num_intervals
        if closes_epoch:
            del self._come[epoch]
        return [
            DueStep(
                pairs=((interval, epoch),),
                losses=(complete.loss,),
                gradients=complete.gradients,
                loss=complete.loss,
                factor=self._factor,
                statistics=complete.statistics,
                version=complete.version,
                closes_epoch=closes_epoch,
            )
        ]

    def forget(self) -> None:
        """See `UpdatePolicy`."""
