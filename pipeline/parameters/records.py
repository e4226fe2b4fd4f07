"""The records of parameter servers.

A gradient is a `Push` per stage, then a `Step` of one interval, then part of an optimizer's `Step`. `Applied` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dorylax.pipeline.parameters.stability import Stability

Tree = Any
"""A pytree of arrays."""

Sums = Mapping[str, Any]
"""Name → array: what a stage of an interval adds to sums over rows. Never written to after it was pushed."""

Pair = tuple[int, int]
"""(interval, epoch)."""


class Pulled(NamedTuple):
    """A version that an interval computes an epoch with.

    Attributes:
        version: how many updates it has seen.
        params: the parameters.
        state: what else the model keeps from epoch to epoch (running statistics, counters).
        ahead: by how many updates the parameters are predicted beyond the version; 0 where they are that version's.
        exact: whether the interval must read rows of its own epoch, because the stability gate is closed.
    """

    version: int
    params: Tree
    state: Tree
    ahead: int = 0
    exact: bool = False


class Push(NamedTuple):
    """What a stage of an interval gives in an epoch."""

    interval: int
    epoch: int
    stage: int
    sums: Sums


Gradient = tuple[Tree, float, Tree]
"""An interval's gradient shaped as the parameters, its part of the loss, and the statistics of its forward pass."""

Finish = Callable[[Tree, Tree, int, Mapping[int, Sums]], Gradient]
"""(parameters and state that the interval pulled, epoch, sums by stage, in stage order) → its gradient. Pure."""

Advance = Callable[[Tree, Tree, int, Tree], Tree]
"""(parameters, state, epoch, statistics) → the state of the next version. The statistics are those of the interval whose
gradient leads to it, of the first where there are several; everything else is of the newest version. Pure."""


class Step(NamedTuple):
    """An optimizer step, or the gradient of one interval that is to be in one.

    Attributes:
        number: Version that the step leads to; 0 before the sequencer has numbered it.
        epoch: Epoch of the gradients.
        gradients: Shaped as the parameters.
        loss: The loss that they are the gradient of.
        factor: See `OptimizerStep`.
        statistics: See `Advance`.
        pairs: The intervals and epochs of the gradients.
        losses: The part of the loss of each.
        closes: No later step has gradients of this epoch, or of one before it.
    """

    number: int
    epoch: int
    gradients: Tree
    loss: float
    factor: int = 1
    statistics: Tree = ()
    pairs: tuple[Pair, ...] = ()
    losses: tuple[float, ...] = ()
    closes: bool = True

    @classmethod
    def of(cls, interval: int, epoch: int, gradient: Gradient) -> Step:
        """The gradient of an interval."""
        gradients, loss, statistics = gradient
        return cls(0, epoch, gradients, loss, 1, statistics, ((interval, epoch),), (loss,), closes=False)


class Applied(NamedTuple):
    """Complete gradients that are in the weights now, or came too late for that.

    Attributes:
        version: of the weights that have those in time: that of server 0, and of all servers after the last of an epoch.
        pairs: (interval, epoch) of each.
        losses: the part of the loss of each.
    """

    version: int
    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]


class ServerState(NamedTuple):
    """A version: all that a parameter server needs to go on, while no interval computes.

    Attributes:
        version: how many updates it has seen.
        params: the parameters.
        opt_state: the optimizer's state.
        state: what else the model keeps.
        remembered: of the update that led to it, what a prediction needs (`Prediction.remembered`); None where nothing is.
        stability: measurements of the stability gate; None without a gate.
    """

    version: int
    params: Tree
    opt_state: Tree
    state: Tree
    remembered: Tree = None
    stability: Stability | None = None

    @property
    def may_be_ahead(self) -> bool:
        """Whether intervals may run ahead of it, and read rows of earlier epochs."""
        return self.stability is None or bool(self.stability.open)
