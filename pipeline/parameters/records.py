"""The records of parameter servers.

A gradient is a `Push` per stage, then a `Step` of one interval, then part of an optimizer's `Step`. `Applied` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dorylax.pipeline.parameters.stability import Stability

# The kind of a message or computation: the second number of its `order`, after the epoch or the version.
PULL, PUSH, FINISH, ARRIVED, UPDATES, APPLY, PREDICT = range(7)

Tree = Any
"""A pytree of arrays."""

Sums = Mapping[str, Any]
"""Name → array: the part of a stage and interval in sums over rows. Immutable after the push."""

Pair = tuple[int, int]
"""(interval, epoch)."""


class Pulled(NamedTuple):
    """The version with which an interval computes an epoch.

    Attributes:
        version: The number of updates in it.
        params: The parameters.
        state: The model's other variables: running statistics, counters.
        ahead: The number of updates by which `params` are predicted beyond the version; 0 without prediction.
        exact: Whether the interval must read rows of the same epoch, because the stability gate is closed.
    """

    version: int
    params: Tree
    state: Tree
    ahead: int = 0
    exact: bool = False


class Push(NamedTuple):
    """The sums of one stage of an interval in an epoch."""

    interval: int
    epoch: int
    stage: int
    sums: Sums


Gradient = tuple[Tree, float, Tree]
"""An interval's gradient shaped as the parameters, its part of the loss, and the statistics of its forward pass."""

Finish = Callable[[Tree, Tree, int, Mapping[int, Sums]], Gradient]
"""(pulled parameters, pulled state, epoch, sums by stage in stage order) → the interval's gradient. Pure."""

Advance = Callable[[Tree, Tree, int, Tree], Tree]
"""(parameters, state, epoch, statistics) → the state of the next version. Parameters and state are the newest. The
statistics are those of the first interval in the step. Pure."""


class Step(NamedTuple):
    """An optimizer step, or the gradient of one interval before its step.

    Attributes:
        number: The version after the step; 0 before the sequencer has numbered it.
        epoch: Epoch of the gradients.
        gradients: Shaped as the parameters.
        loss: The loss of the gradients.
        factor: See `OptimizerStep`.
        statistics: See `Advance`.
        pairs: The intervals and epochs of the gradients.
        losses: The part of each in the loss.
        closes: Whether no later step has gradients of this epoch or an earlier one.
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
        """Return the gradient of an interval as a step."""
        gradients, loss, statistics = gradient
        return cls(0, epoch, gradients, loss, 1, statistics, ((interval, epoch),), (loss,), closes=False)


class Applied(NamedTuple):
    """Complete gradients that are now in the weights, or were too late for their step.

    Attributes:
        version: The version of server 0 that contains those in time. All servers have the last version of an epoch.
        pairs: The (interval, epoch) of each gradient.
        losses: The part of each in the loss.
    """

    version: int
    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]


class ServerState(NamedTuple):
    """A version: the complete state of a parameter server while no interval computes.

    Attributes:
        version: The number of updates in it.
        params: The parameters.
        opt_state: The state of the optimizer.
        state: The model's other variables.
        remembered: The result of `Prediction.remembered` for the last update; None without prediction.
        stability: The measurements of the stability gate; None without a gate.
    """

    version: int
    params: Tree
    opt_state: Tree
    state: Tree
    remembered: Tree = None
    stability: Stability | None = None

    @property
    def may_be_ahead(self) -> bool:
        """Whether intervals may run ahead of this version, and read rows of earlier epochs."""
        return self.stability is None or bool(self.stability.open)
