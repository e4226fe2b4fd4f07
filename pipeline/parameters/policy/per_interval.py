"""One step per complete gradient, as it arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.policy.base import DueStep


@final
class PerInterval:
    """Makes a step of each complete gradient.

    Args:
        num_intervals: K.
        scaling: K steps move as far as one step with the sum of K gradients would.
        made: of how many intervals the gradient of an epoch is in a step already, by epoch.
    """

    waiting = 0

    def __init__(self, num_intervals: int, *, scaling: bool = True, made: Mapping[int, int] | None = None) -> None:
        self._num_intervals, self._factor = num_intervals, num_intervals if scaling else 1
        self._come: Counter[int] = Counter(made or {})  # gradients by epoch, of epochs that are not whole

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
                closes_epoch=closes_epoch,
            )
        ]

    def forget(self) -> None:
        """See `UpdatePolicy`."""
