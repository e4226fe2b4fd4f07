"""What parameter servers are sent, send each other and answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Tree = Any
"""A pytree of arrays."""

Sums = Mapping[str, Any]
"""Name → array: what a stage of an interval adds to sums over rows. Never written to after it was pushed."""

Pair = tuple[int, int]
"""(interval, epoch)."""


class Pulled(NamedTuple):
    """Weights that an interval computes an epoch with.

    Attributes:
        version: how many updates they have seen.
        params: the parameters.
    """

    version: int
    params: Tree


class Push(NamedTuple):
    """What a stage of an interval gives in an epoch."""

    interval: int
    epoch: int
    stage: int
    sums: Sums


class Complete(NamedTuple):
    """All of an interval's gradient in an epoch.

    Attributes:
        gradients: shaped as the parameters.
        loss: the interval's part of the loss.
        extra: a pytree of anything else that goes to who is told of applied gradients.
    """

    gradients: Tree
    loss: float
    extra: Any = None


Finish = Callable[[Tree, int, Mapping[int, Sums]], Complete]
"""(parameters that the interval pulled, epoch, sums by stage) → its complete gradient. Pure; sums in stage order."""


class Arrived(NamedTuple):
    """A complete gradient on its way to the sequencer."""

    interval: int
    epoch: int
    complete: Complete


class Update(NamedTuple):
    """One optimizer step, the same for all servers.

    Attributes:
        number: the version that it leads to.
        gradients: shaped as the parameters.
        loss: what they are the gradient of.
        factor: see `OptimizerStep`.
    """

    number: int
    gradients: Tree
    loss: float
    factor: int


class Applied(NamedTuple):
    """Complete gradients that are in the weights now.

    Attributes:
        version: of the weights that have them: that of server 0, and of all servers after the last gradient of an epoch.
        pairs: (interval, epoch) of each.
        losses: the part of the loss of each.
        extras: what `Complete.extra` was for each.
    """

    version: int
    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]
    extras: tuple[Any, ...]


class ServerState(NamedTuple):
    """All that a parameter server needs to go on, while no interval computes."""

    version: int
    params: Tree
    opt_state: Tree
