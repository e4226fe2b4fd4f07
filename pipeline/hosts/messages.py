"""What the driver, the ledger and hosts in other processes tell each other."""

from __future__ import annotations

from typing import Any, NamedTuple

from dorylax.pipeline.parameters.messages import Tree
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.transport.base import Role


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


class Standing(NamedTuple):
    """How far a run has come, and all that is needed to go on from there if every server is lost.

    Attributes:
        epoch: the first that not all intervals have finished.
        version: how many updates the weights have seen.
        params, opt_state, state: as of `ServerState`.
        known: what else parameter servers know (`save_known`).
        due: the epoch of each interval's first gradient that is not in the version (`parameters.due`).
        losses: (epoch, loss) of epochs that are finished, and that the driver has not asked for.
        synchronous_from: as of `Allowance`.
    """

    epoch: int
    version: int
    params: Tree
    opt_state: Tree
    state: Tree
    known: dict[str, Any]
    due: list[int]
    losses: list[tuple[int, float]]
    synchronous_from: int | None


class Weights(NamedTuple):
    """What the driver is told after an epoch.

    Attributes:
        epoch: that all have finished.
        loss: of the epoch.
        standing: how far the run has come by then.
    """

    epoch: int
    loss: float
    standing: Standing


class Assembly(NamedTuple):
    """Who the servers of a generation are, and where. A run has one more generation with every loss.

    Attributes:
        generation: from 0; hosts take no lower one than they have.
        book: role, index and endpoint of all who may be asked.
        epoch: the first that is trained.
        fills_ghosts: whether that is a synchronous one, since no buffers are brought back.
    """

    generation: int
    book: list[tuple[Role, int, str]]
    epoch: int
    fills_ghosts: bool


class Beginning(NamedTuple):
    """What a host begins with.

    Attributes:
        constants: values of `DriverFunctions.constants`, the same on every host.
        params, opt_state, state: of parameter servers; None for graph servers, and `opt_state` where it is new.
        arrays: of `Saved`, those that are the host's; empty where nothing was saved.
        part: of a checkpoint: the host's own file, in place of such arrays.
        record: of `Saved`; None where the run begins, or goes on after a loss.
        counts: what was counted of the next epoch already; of `Saved`.
        standing: what parameter servers go on from after a loss, in place of all that; None elsewhere.
    """

    constants: list[Any]
    params: Tree
    opt_state: Tree
    state: Tree
    arrays: dict[str, Any]
    part: Any
    record: Any
    counts: dict[str, Any]
    standing: Standing | None = None


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
        report: all that it has counted.
    """

    seconds: float
    spans: str
    metrics: dict[str, Any]
    report: Report


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
