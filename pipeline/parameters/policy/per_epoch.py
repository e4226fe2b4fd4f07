"""One step per epoch: the gradient of the whole graph."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.ordered_sum import OrderedSum
from dorylax.pipeline.parameters.policy.base import Step


class _Epoch(NamedTuple):
    total: OrderedSum
    told: dict[int, tuple[float, Any]]  # interval -> loss, extra


@final
class PerEpoch:
    """Sums the gradients of all intervals in the order of intervals, never in that of arrival.

    Args:
        num_intervals: K.
    """

    def __init__(self, num_intervals: int) -> None:
        self._num_intervals = num_intervals
        self._epochs: dict[int, _Epoch] = {}

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return sum(len(epoch.told) for epoch in self._epochs.values())

    def add(self, interval: int, epoch: int, complete: Complete) -> list[Step]:
        """See `UpdatePolicy`. An epoch cannot be whole before the one before it is: intervals go in order."""
        total, told = self._epochs.setdefault(epoch, _Epoch(OrderedSum(self._num_intervals), {}))
        total.add(interval, complete.gradients)
        told[interval] = (complete.loss, complete.extra)
        if total.total is None:
            return []
        del self._epochs[epoch]
        intervals = range(self._num_intervals)
        losses, extras = zip(*(told[interval] for interval in intervals), strict=True)
        return [Step(tuple((interval, epoch) for interval in intervals), losses, extras, total.total, factor=1)]
