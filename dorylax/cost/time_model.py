"""Durations of tasks on a cluster, for the virtual clock."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from dorylax.clock import Duration, Shared, Use, VirtualClock
from dorylax.clock.duration import Part
from dorylax.cost.cluster import Cluster
from dorylax.cost.instance import INSTANCES
from dorylax.cost.machines import FUNCTIONS, MESSAGES, Machines, Place
from dorylax.cost.measured_speeds import MeasuredSpeeds, RowsRead
from dorylax.cost.variation import Variation

Amount = float | int  # bytes and operations are whole numbers
TimedPart = tuple[float, Part]
"""Seconds of a part without other users, and the part; the part is empty if it takes nothing."""

# Adam reads gradient, parameters and two moments, and writes the latter three: 7 passes over memory. Assumption: as many
# whatever the optimizer.
UPDATE_PASSES = 7


class Streamed(NamedTuple):
    """Rows that a function fetches while it computes (`tensor.streaming`), and the operations that wait for them."""

    bytes: Amount
    flops: Amount


NO_ROWS = Streamed(0, 0)


class TimeModel:
    """Durations of tasks: a fixed part, plus work over speed, plus bytes over bandwidth, times a random factor.

    The parts are added: none overlaps another within a task. On a cluster without contention, durations are seconds: tasks
    on one server do not slow each other down except by waiting for threads, and messages do not share the network. With
    contention they are seconds and amounts of resources that `Machines` share. A task alone then takes as long as without
    contention.

    The random factor (`Variation`) is a pure function of the seed, the kind of task and its key: equal keys give equal
    durations in any order of calls. Every task needs its own key, as does each retry. The factor scales the time of a task
    alone, by fixed seconds; shared amounts do not depend on it, so a straggler is slow and does not send more. (A task that
    is faster than the median saves fixed seconds at most.)

    Args:
        cluster: The rented machines.
        seed: Seed of the run.
        machines: The servers on the run's clock with `cluster.contention`; None without.

    Raises:
        ValueError: `machines` and `cluster.contention` do not agree.
    """

    def __init__(self, cluster: Cluster, seed: int, machines: Machines | None = None) -> None:
        if cluster.contention != (machines is not None):
            raise ValueError(
                "machines are what tasks share: give them where the cluster has contention, and only there"
            )
        self.cluster = cluster
        self.seed = seed
        self.machines = machines
        self.measured: MeasuredSpeeds | None = None
        if cluster.measured is not None and cluster.graph_server.name not in INSTANCES:  # else it was replaced
            self.measured = MeasuredSpeeds(cluster.measured, cluster.graph_server)
        self._ways: dict[tuple[Place, Place], tuple[tuple[Shared, ...], float]] = {}  # results of `Machines.between`

    @property
    def by_rows(self) -> bool:
        """Whether the time of a gather depends on the width of its rows."""
        return self.measured is not None or self.cluster.graph_server.row_latency > 0

    def graph_task(
        self,
        key: tuple[int, ...],
        *,
        flops: Amount,
        bytes: Amount,
        server: int = 0,
        rows: RowsRead | None = None,
        elementwise: Amount | None = None,
    ) -> Duration:
        """Duration of a task on one thread of a graph server, or on its GPU.

        Args:
            key: Identity of the task.
            flops: Floating-point operations (≥ 0).
            bytes: Bytes that it reads along edges and writes (≥ 0).
            server: Number of the graph server.
            rows: Rows along edges that these bytes belong to; None for sequential reads. Used only if `by_rows`.
            elementwise: Operations of a stage outside matrix products, a part of `flops`; None if the task is no stage. Used
                only on measured machines.

        Raises:
            ValueError: An amount is negative.
        """
        if not (flops >= 0 and bytes >= 0):
            _refuse(flops=flops, bytes=bytes)
        server_type, machines = self.cluster.graph_server, self.machines
        if self.measured is not None:
            flops, bytes = self.as_described(self.measured, flops, bytes, rows, elementwise)
        elif rows is not None and server_type.row_latency:
            bytes *= max(1.0, server_type.row_latency * server_type.memory_bandwidth / rows.row_bytes)
        factor = server_type.variation.factor(self.seed, "graph", key)
        if (gpu := server_type.gpu) is not None:
            return (gpu.launch + flops / gpu.flops + bytes / gpu.memory_bandwidth) * factor
        if machines is None:
            return (server_type.overhead + flops / server_type.flops + bytes / server_type.memory_bandwidth) * factor
        place, lift = ("graph", server), server_type.lift(1)
        parts = (
            using((machines.cores(place),), flops, server_type.flops * lift),
            using((machines.memory(place),), bytes, server_type.memory_bandwidth * lift),
        )
        return in_sequence(server_type.overhead, parts, factor)

    def tensor_task(
        self,
        key: tuple[int, ...],
        *,
        flops: Amount,
        bytes_in: Amount,
        bytes_out: Amount,
        server: int = 0,
        requests: int = 0,  # noqa: ARG002
        elementwise: Amount = 0,  # noqa: ARG002
        cold: bool = False,
        streamed: Streamed = NO_ROWS,
    ) -> Duration:
        """Duration of a call of a function, from the request to the result.

        Args:
            key: Identity of the task.
            flops: Floating-point operations (≥ 0).
            bytes_in: Fetched bytes: rows and parameters (≥ 0).
            bytes_out: Returned bytes: rows and gradients (≥ 0).
            server: Number of the graph server that has the rows.
            requests: Number of transfers, which this model ignores, as `elementwise`.
            elementwise: Operations outside matrix products, a part of `flops`.
            cold: Whether the function starts first. Used only with contention.
            streamed: Rows that arrive during the computation, with the operations that wait for them.

        Raises:
            ValueError: An amount is negative.
        """
        if not (flops >= 0 and bytes_in >= 0 and bytes_out >= 0):
            _refuse(flops=flops, bytes_in=bytes_in, bytes_out=bytes_out)
        function, machines = self.cluster.function, self.machines
        factor = function.variation.factor(self.seed, "tensor", key)
        speed = function.flops * function.virtual_cpus
        first, then = (flops - streamed.flops) / speed, streamed.flops / speed
        if machines is None:
            both = max(first, streamed.bytes / function.network_bandwidth) + then
            moved = (bytes_in - streamed.bytes + bytes_out) / function.network_bandwidth
            return (function.overhead + moved + both) * factor
        place: Place = ("graph", server)
        alone = min(function.bandwidth_among(1), self.cluster.graph_server.network_bandwidth)
        out, into = machines.network("out", place), machines.network("into", place)
        computed: tuple[TimedPart, ...] = ((first, first),)
        if streamed.bytes:  # they arrive while the function computes, which takes its seconds whoever else computes
            uses = (
                Use((out,), float(streamed.bytes), FUNCTIONS),
                *([Use((machines.passing,), first)] if first else []),
            )
            computed = ((max(first, streamed.bytes / alone), uses), (then, then))
        parts = (
            using((out,), bytes_in - streamed.bytes, alone, FUNCTIONS),
            *computed,
            using((into,), bytes_out, alone, FUNCTIONS),
        )
        return in_sequence(function.overhead + (function.cold_start if cold else 0.0), parts, factor)

    def message(
        self, key: tuple[int, ...], *, bytes: Amount, sender: Place = ("graph", 0), receiver: Place = ("graph", 1)
    ) -> Duration:
        """Duration of a message of so many bytes (≥ 0) between servers. It uses all networks between them simultaneously.

        Args:
            key: Identity of the message.
            bytes: Its length; a ValueError is raised if it is negative.
            sender: Sending server. Used only with contention, as `receiver`.
            receiver: Receiving server.
        """
        if not bytes >= 0:
            _refuse(bytes=bytes)
        server, machines = self.cluster.graph_server, self.machines
        factor = server.variation.factor(self.seed, "message", key)
        if machines is None:
            return (self.cluster.latency + bytes / server.network_bandwidth) * factor
        found = self._ways.get((sender, receiver))
        if found is None:
            found = self._ways[sender, receiver] = machines.between(sender, receiver)
        ways, speed = found
        # The same as `in_sequence`, but faster: most durations of a simulation are those of messages.
        latency = self.cluster.latency
        seconds = max(0.0, latency + (factor - 1) * (latency + bytes / speed))
        return (seconds, (Use(ways, float(bytes), MESSAGES),)) if bytes else seconds

    def update(self, key: tuple[int, ...], *, bytes: Amount) -> Duration:
        """Duration of an optimizer step on one thread of a parameter server, whose other threads are idle.

        Args:
            key: Identity of the step.
            bytes: Size of the parameters; a ValueError is raised if it is negative.
        """
        if not bytes >= 0:
            _refuse(bytes=bytes)
        server = self.cluster.parameter_server
        speed = server.memory_bandwidth * (server.lift(1) if self.cluster.contention else 1)
        median = server.overhead + UPDATE_PASSES * bytes / speed
        return median * server.variation.factor(self.seed, "update", key)

    def pause(self, server: int, epoch: int) -> float:
        """Seconds in which a graph server computes nothing before an epoch, if it straggles then; otherwise 0."""
        cluster = self.cluster
        if not cluster.pause:
            return 0.0
        drawn = Variation(sigma=0.0, straggler_probability=cluster.pause_probability, straggler_factor=2.0)
        return cluster.pause if drawn.factor(self.seed, "pause", (server, epoch)) > 1 else 0.0

    def as_described(
        self, measured: MeasuredSpeeds, flops: Amount, bytes: Amount, rows: RowsRead | None, elementwise: Amount | None
    ) -> tuple[Amount, Amount]:
        """Operations and bytes that take, at the description's speeds, the measured time of a task."""
        server = self.cluster.graph_server
        lift = server.lift(1)
        if elementwise is not None:
            return measured.stage(flops, elementwise, bytes, 1) * server.flops * lift, 0.0
        seconds, held_back = measured.reading(bytes, rows), measured.held_back(rows)
        flops += (1 - held_back) * seconds * server.flops * lift
        return flops, held_back * seconds * server.memory_bandwidth * lift


@functools.singledispatch
def times_of(cluster: Cluster, seed: int, clock: VirtualClock, servers: int) -> TimeModel:
    """Return the time model of a run with so many servers of both kinds. Subclasses of `Cluster` register their own."""
    return TimeModel(cluster, seed, Machines(cluster, clock, servers) if cluster.contention else None)


def using(of: tuple[Shared, ...], amount: Amount, alone: float, kind: int = 0) -> TimedPart:
    """A part of a task that shares resources with other tasks.

    Args:
        of: Resources that it uses simultaneously.
        amount: Amount of each.
        alone: Amount per second without other users.
        kind: Kind of use (`Use`).
    """
    return (amount / alone, (Use(of, float(amount), kind),)) if amount else (0.0, ())


def in_sequence(first: float, parts: Sequence[TimedPart], factor: float) -> Duration:
    """Seconds and parts in sequence. The seconds are such that the task alone takes `factor` times its median."""
    alone = first
    for seconds, _ in parts:
        alone += seconds
    later = [part for _, part in parts if part != ()]
    seconds = max(0.0, first + (factor - 1) * alone)
    return (seconds, *later) if later else seconds


def _refuse(**amounts: Amount) -> NoReturn:
    for name, amount in amounts.items():
        if not amount >= 0:
            raise ValueError(f"{name} must be ≥ 0, got {amount}")
    raise AssertionError("one of them is wrong")
