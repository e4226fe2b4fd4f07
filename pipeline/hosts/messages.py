"""Addresses of the driver, the ledger and hosts in other processes, and the messages between them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dorylax.pipeline.parameters.records import Tree
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.transport.base import Address, Role

DRIVER, LEDGER = Address("driver", 0), Address("ledger", 0)


def host_address(role: str, index: int, servers: int) -> Address:
    """Return the address of a server for the driver: graph servers first, then parameter servers."""
    return Address("host", index if role == "graph" else servers + index)


class MemberSpec(NamedTuple):
    """One server of a run.

    Attributes:
        role: Kind of server.
        number: Number within the kind.
    """

    role: Literal["graph", "parameter"]
    number: int

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.role} server {self.number}"


class Status(NamedTuple):
    """Status updates from a host's intervals.

    Attributes:
        number: Sequence number of the message, which removes repeats.
        items: `Started` and `Completed`, in order.
    """

    number: int
    items: list[Any]


class AllowanceUpdate(NamedTuple):
    """An allowance for a host.

    Attributes:
        number: Sequence number; higher is newer.
        allowance: Limits of the host's intervals.
    """

    number: int
    allowance: Allowance


class RunState(NamedTuple):
    """State of a run after an epoch, sufficient to recover from the loss of every server.

    Attributes:
        epoch: First epoch that some interval has not finished.
        version: Number of updates in the weights.
        params, opt_state, state: See `ServerState`.
        known: Further state of parameter servers (`save_known`).
        due: Epoch of each interval's first gradient outside the version (`parameters.due`).
        losses: (epoch, loss) of finished epochs that the driver has not requested yet.
        synchronous_from: See `Allowance`.
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


class Assembly(NamedTuple):
    """Servers of a generation and their endpoints. Every loss starts a new generation.

    Attributes:
        generation: Number from 0; hosts ignore lower ones than their own.
        book: Role, index and endpoint of every server.
        assigned: Servers of each host.
        epoch: First epoch to train.
        fills_ghosts: Whether that epoch is synchronous, because no buffers are restored.
    """

    generation: int
    book: list[tuple[Role, int, str]]
    assigned: tuple[tuple[MemberSpec, ...], ...]
    epoch: int
    fills_ghosts: bool


class HostState(NamedTuple):
    """Initial state of a host.

    Attributes:
        constants: Values of `DriverFunctions.constants`, equal on every host.
        params, opt_state, state: State of parameter servers; None for graph servers. A new `opt_state` is None.
        arrays: The host's arrays of `Saved`; empty without a saved state.
        part: The host's file of a checkpoint, instead of `arrays`.
        record: Record of `Saved`; None at the start of a run and after a loss.
        counts: Counters of the next epoch in `Saved`.
        run_state: State of parameter servers after a loss, instead of the above; otherwise None.
    """

    constants: list[Any]
    params: Tree
    opt_state: Tree
    state: Tree
    arrays: dict[str, Any]
    part: Any
    record: Any
    counts: dict[str, Any]
    run_state: RunState | None = None


class EpochReport(NamedTuple):
    """Work of a host in an epoch.

    Attributes:
        seconds: Time of the host's clock at the reply.
        spans: Spans of tasks since the previous epoch by that clock, as a JSON list of `Span`. JSON is compact for so many
            numbers and names.
        metrics: Metrics of the server in the epoch (`store.servers.to_dict`).
        report: All counters (`dataclasses.asdict` of `Counters`).
    """

    seconds: float
    spans: str
    metrics: dict[str, Any]
    report: dict[str, Any]


class Evaluate(NamedTuple):
    """A request to evaluate a version.

    Attributes:
        number: Sequence number of the evaluation.
        params: Parameters of the model.
        state: Other state of the model.
        outputs: Whether to return outputs instead of reported sums.
    """

    number: int
    params: Tree
    state: Tree
    outputs: bool
