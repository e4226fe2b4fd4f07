"""One step per epoch: the gradient of the whole graph."""

from __future__ import annotations

import dataclasses
from typing import final

from dorylax.pipeline.parameters.messages import Complete, Tree
from dorylax.pipeline.parameters.ordered_sum import OrderedSum
from dorylax.pipeline.parameters.policy.base import DueStep


@dataclasses.dataclass
class _Epoch:
    total: OrderedSum
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    statistics: Tree = ()


@final
class PerEpoch:
    """Sums the gradients of all intervals in the order of intervals, never in that of arrival; statistics are the first's.

    Args:
        num_intervals: K.
    """

    def __init__(self, num_intervals: int) -> None:
        self._num_intervals = num_intervals
        self._epochs: dict[int, _Epoch] = {}

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return sum(len(epoch.losses) for epoch in self._epochs.values())

    def add(self, interval: int, epoch: int, complete: Complete) -> list[DueStep]:
        """See `UpdatePolicy`. An epoch cannot be whole before the one before it is: intervals go in order."""
        found = self._epochs.setdefault(epoch, _Epoch(OrderedSum(self._num_intervals)))
        found.total.add(interval, complete.gradients)
        found.losses[interval] = complete.loss
        if interval == 0:
            found.statistics = complete.statistics
        gradients = found.total.total
        if gradients is None:
            return []
        del self._epochs[epoch]
        pairs = tuple((interval, epoch) for interval in range(self._num_intervals))
        losses = tuple(found.losses[interval] for interval, _ in pairs)
        return [DueStep(pairs, losses, gradients, sum(losses), 1, found.statistics, closes_epoch=True)]

    def forget(self) -> None:
        """See `UpdatePolicy`."""
