"""What the driver, the ledger and hosts in other processes tell each other."""

from __future__ import annotations

from typing import Any, NamedTuple

from dorylax.pipeline.parameters.messages import Tree
from dorylax.pipeline.staleness import Allowance


class News(NamedTuple):
    """What intervals of a host have done.

    Attributes:
        number: of these news among those of the host: they count once, whatever comes twice.
        items: `Started` and `Walked`, in order.
    """

    number: int
    items: list[Any]


class Told(NamedTuple):
    """An allowance on its way to a host.

    Attributes:
        number: a higher one is newer.
        allowance: how far the host may go.
    """

    number: int
    allowance: Allowance


class Weights(NamedTuple):
    """A version, as the driver is told of it after an epoch.

    Attributes:
        epoch: that all have finished.
        loss: of the epoch.
        version: how many updates the weights have seen.
        params, opt_state, state: as of `ServerState`.
    """

    epoch: int
    loss: float
    version: int
    params: Tree
    opt_state: Tree
    state: Tree


class Beginning(NamedTuple):
    """What a host begins with.

    Attributes:
        constants: values of `DriverFunctions.constants`, the same on every host.
        params, opt_state, state: of parameter servers; None for graph servers, and `opt_state` where it is new.
        arrays: of `Saved`, those that are the host's; empty where nothing was saved.
        part: of a checkpoint: the host's own file, in place of such arrays.
        record: of `Saved`; None where the run begins.
        counts: what was counted of the next epoch already; of `Saved`.
    """

    constants: list[Any]
    params: Tree
    opt_state: Tree
    state: Tree
    arrays: dict[str, Any]
    part: Any
    record: Any
    counts: dict[str, Any]


class Report(NamedTuple):
    """What a host has counted.

    Attributes:
        counters: `dataclasses.asdict` of `Counters`.
        relaunched: calls that were begun beside a late one.
    """

    counters: Any
    relaunched: int


class Worked(NamedTuple):
    """What a host has done.

    Attributes:
        seconds: of the host's clock, when it answered.
        spans: of tasks since the epoch before was finished, by that clock: JSON of a list of `Span`. They are as many as all
            else in an epoch, and numbers and names alone.
        metrics: of the server in the epoch (`runs.servers.to_dict`).
    """

    seconds: float
    spans: str
    metrics: dict[str, Any]


class Evaluate(NamedTuple):
    """A version that is to be evaluated.

    Attributes:
        number: of the evaluation, one more than that of the one before.
        params: parameters.
        state: what else the model keeps.
        outputs: whether the outputs themselves are wanted, not what is reported of them.
    """

    number: int
    params: Tree
    state: Tree
    outputs: bool
