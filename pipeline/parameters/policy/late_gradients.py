"""One step per epoch that does not wait for the last intervals: the gradients that they had last stand in for theirs.

As synchronous SGD with backup workers (Chen et al., 2016) in that a step needs only a share of the gradients, but nothing is
left out: who is late counts with what it had, so that the sum stays one over the whole graph.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.ordered_sum import OrderedSum
from dorylax.pipeline.parameters.policy.base import DueStep, Late


@final
class LateGradients:
    """Makes the step of an epoch once enough of its gradients have come, and the step before it is made.

    A gradient that comes later is in no step of its own epoch. It stands in for the interval's next one, should that be
    late too. The first epoch's step, and the first after `forget`, wait for all. Costs a copy of the gradient per interval.

    Args:
        num_intervals: K.
        share: of the gradients, above 0 and at most 1, rounded up.
    """

    def __init__(self, num_intervals: int, share: float) -> None:
        # The decimal that was written: in binary, 0.7 * 10 is a little more than 7.
        self._num_intervals, self._enough = num_intervals, math.ceil(Fraction(str(share)) * num_intervals)
        self._last: dict[int, Complete] = {}  # interval -> the newest that is in a step, or was too late for one
        self._come: dict[int, dict[int, Complete]] = {}  # epoch -> interval -> gradient, of epochs without a step
        self._stepped: int | None = None

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return sum(map(len, self._come.values()))

    def forget(self) -> None:
        """See `UpdatePolicy`."""
        self._last.clear()

    def add(self, interval: int, epoch: int, complete: Complete) -> list[DueStep | Late]:
        """See `UpdatePolicy`."""
        if self._stepped is not None and epoch <= self._stepped:
            self._last[interval] = complete
            return [Late((interval, epoch), complete.loss)]
        self._come.setdefault(epoch, {})[interval] = complete
        steps: list[DueStep | Late] = []
        while self._come and self._is_due(min(self._come)):
            steps.append(self._step(min(self._come)))
        return steps

    def _is_due(self, epoch: int) -> bool:
        come = self._come[epoch]
        if self._stepped is not None and epoch != self._stepped + 1:
            return False
        return len(come) >= self._enough and len(come.keys() | self._last.keys()) == self._num_intervals

    def _step(self, epoch: int) -> DueStep:
        come = self._come.pop(epoch)
        self._stepped, self._last = epoch, self._last | come
        everyone = [self._last[interval] for interval in range(self._num_intervals)]
        total = OrderedSum(self._num_intervals)
        for interval, complete in enumerate(everyone):
            total.add(interval, complete.gradients)
        return DueStep(
            pairs=tuple((interval, epoch) for interval in sorted(come)),
            losses=tuple(come[interval].loss for interval in sorted(come)),
            gradients=total.total,
            loss=sum(complete.loss for complete in everyone),
            factor=1,
            statistics=everyone[0].statistics,
            closes_epoch=True,
        )
