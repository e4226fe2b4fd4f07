"""What parameter servers are sent, send each other and answer."""

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


class Complete(NamedTuple):
    """All of an interval's gradient in an epoch.

    Attributes:
        gradients: shaped as the parameters.
        loss: the interval's part of the loss.
        statistics: a pytree of what its forward pass has computed and the next version's state is made of.
    """

    gradients: Tree
    loss: float
    statistics: Tree = ()


Finish = Callable[[Tree, Tree, int, Mapping[int, Sums]], Complete]
"""(parameters and state that the interval pulled, epoch, sums by stage, in stage order) → its complete gradient. Pure."""

Advance = Callable[[Tree, Tree, int, Tree], Tree]
"""(parameters, state, epoch, statistics) → the state of the next version: `Complete.statistics` of the interval whose
gradient leads to it, of the first where there are several; everything else of the newest version. Pure."""


class Arrived(NamedTuple):
    """A complete gradient on its way to the sequencer."""

    interval: int
    epoch: int
    complete: Complete


class Update(NamedTuple):
    """One optimizer step, the same for all servers.

    Attributes:
        number: the version that it leads to.
        epoch: of the gradients.
        gradients: shaped as the parameters.
        loss: what they are the gradient of.
        factor: see `OptimizerStep`.
        statistics: see `Advance`.
        pairs: whose gradients it has, where others of the epoch are still to come; none where it closes the epoch.
    """

    number: int
    epoch: int
    gradients: Tree
    loss: float
    factor: int
    statistics: Tree = ()
    pairs: tuple[Pair, ...] = ()


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
