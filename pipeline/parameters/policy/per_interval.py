"""One step per complete gradient, as it arrives."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.policy.base import DueStep


@final
class PerInterval:
    """Makes a step of each complete gradient.

    Args:
        factor: K, so that K steps move as far as one step with the sum of K gradients would; 1 to leave steps as they are.
    """

    waiting = 0

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def add(self, interval: int, epoch: int, complete: Complete) -> list[DueStep]:
        """See `UpdatePolicy`."""
        pair = (interval, epoch)
        return [DueStep((pair,), (complete.loss,), complete.gradients, self._factor, complete.statistics)]
