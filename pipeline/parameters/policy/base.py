"""The contract of update policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dorylax.pipeline.parameters.messages import Complete, Pair, Tree


class DueStep(NamedTuple):
    """An optimizer step that is due.

    Attributes:
        pairs: the (interval, epoch) of the complete gradients in it.
        losses: the part of the loss of each.
        gradients: what the step is made with: their sum, with what stands in for gradients that are late.
        loss: what that is the gradient of.
        factor: see `OptimizerStep`.
        statistics: `Complete.statistics` of the first of them.
        closes_epoch: no later step has gradients of its epoch, or of one before it.
    """

    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]
    gradients: Tree
    loss: float
    factor: int
    statistics: Tree
    closes_epoch: bool

    @property
    def epoch(self) -> int:
        """That of its gradients."""
        return self.pairs[0][1]


class Late(NamedTuple):
    """A complete gradient that came after the step of its epoch, and is in none.

    Attributes:
        pair: its (interval, epoch).
        loss: its part of the loss.
    """

    pair: Pair
    loss: float


@runtime_checkable
class UpdatePolicy(Protocol):
    """Makes steps of complete gradients.

    Each gradient is in exactly one step of its epoch, or late. Once the gradients of all intervals up to an epoch have come,
    its steps are made.
    """

    @property
    def waiting(self) -> int:
        """How many gradients have come and are in no step yet."""
        ...

    def add(self, interval: int, epoch: int, complete: Complete) -> Sequence[DueStep | Late]:
        """Takes a complete gradient: each pair once, the epochs of an interval in order.

        Returns:
            The steps that can be made now, in order; or that the gradient is late.
        """
        ...

    def forget(self) -> None:
        """Goes on as a new one would, now that no gradient waits: what has been in steps stands in for nothing."""
        ...
