"""The contract of update policies."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from dorylax.pipeline.parameters.messages import Complete, Pair, Tree


class DueStep(NamedTuple):
    """An optimizer step that is due.

    Attributes:
        pairs: the (interval, epoch) of the complete gradients in it.
        losses: the part of the loss of each.
        gradients: their sum.
        factor: see `OptimizerStep`.
        statistics: `Complete.statistics` of the first of them.
    """

    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]
    gradients: Tree
    factor: int
    statistics: Tree

    @property
    def epoch(self) -> int:
        """That of its gradients."""
        return self.pairs[0][1]


@runtime_checkable
class UpdatePolicy(Protocol):
    """Makes steps of complete gradients.

    Each gradient is in exactly one step. The gradients of all intervals up to an epoch give steps that end with it.
    """

    @property
    def waiting(self) -> int:
        """How many gradients have come and are in no step yet."""
        ...

    def add(self, interval: int, epoch: int, complete: Complete) -> list[DueStep]:
        """Takes a complete gradient: each pair once, the epochs of an interval in order.

        Returns:
            The steps that can be made now, in order.
        """
        ...
