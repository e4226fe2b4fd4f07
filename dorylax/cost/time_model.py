"""How long tasks take on a cluster: what the virtual clock is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn, final

from dorylax.clock import Duration, Shared, Use
from dorylax.cost.cluster import Cluster
from dorylax.cost.instance import INSTANCES
from dorylax.cost.machines import FUNCTIONS, MESSAGES, Machines, Place
from dorylax.cost.measured_speeds import MeasuredSpeeds, RowsRead
from dorylax.cost.one_machine import PASSING, READING, TENSOR, OneMachine

Amount = float | int  # bytes and operations are counted

# Adam reads gradient, parameters and two moments, and writes the latter three: 7 passes over memory. Assumption: as many
# whatever the optimizer.
_UPDATE_PASSES = 7


class Late(NamedTuple):
    """What a function fetches while it computes on what it has already: a later part of the rows (`tensor.streaming`).

    Attributes:
        bytes: of those that it fetches.
        flops: of its operations, those that wait for them.
    """

    bytes: Amount
    flops: Amount


NOTHING_LATE = Late(0, 0)


@final
class TimeModel:
    """Durations of tasks: a fixed part, plus work over speed, plus bytes over bandwidth, times a random factor.

    The parts are added: none overlaps another within a task. On a cluster without contention, durations are seconds: tasks
    on one server do not slow each other down except by waiting for threads, and messages do not share the network. With
    contention they are seconds and amounts of what `Machines` share; alone, a task takes what it takes without.

    The random factor (`Variation`) is a pure function of the seed, the kind of task and its key: equal keys give equal
    durations whenever and however often they are asked for. Every task needs its own key, a retry of one too. It says how
    long a task takes alone: what is shared is of the same amount whatever the factor, so a straggler is slow and does not
    send more. (A task that is faster than the median saves fixed seconds at most.)

    Args:
        cluster: what the tasks run on.
        seed: of the run.
        machines: the servers on the run's clock, where `cluster.contention`; None elsewhere.

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
        # Of each graph server what a thread of it uses to compute and to read, and how fast it does so alone.
        self._ways: dict[tuple[Place, Place], tuple[tuple[Shared, ...], float]] = {}  # as of `Machines.between`
        self._alone: dict[int, tuple[tuple[tuple[Shared, ...], float], tuple[tuple[Shared, ...], float]]] = {}

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
        """What one thread of a graph server needs, or its GPU.

        Args:
            key: which task it is.
            flops: its floating-point operations, ≥ 0.
            bytes: what it reads along edges and writes, ≥ 0.
            server: the number of the graph server.
            rows: the rows along edges that these bytes belong to; None where they are read one after the other. Used only if
                `by_rows`.
            elementwise: of the `flops` of a stage, those that are not of products of matrices; None where it is none. Used
                only where a machine was measured.

        Raises:
            ValueError: a negative amount.
        """
        if not (flops >= 0 and bytes >= 0):
            _refuse(flops=flops, bytes=bytes)
        server_type, machines = self.cluster.graph_server, self.machines
        if self.measured is not None:
            flops, bytes = self._as_described(self.measured, flops, bytes, rows, elementwise)
        elif rows is not None and server_type.row_latency:
            bytes *= max(1.0, server_type.row_latency * server_type.memory_bandwidth / rows.row_bytes)
        factor = server_type.variation.factor(self.seed, "graph", key)
        if (one := self.cluster.one_machine) is not None:
            slow = one.graph_slowdown
            computed = slow * flops / (server_type.flops * server_type.lift(1))
            return _duration(0.0, (self._passing(server_type.overhead + computed), self._reading(slow * bytes)), factor)
        if (gpu := server_type.gpu) is not None:
            return (gpu.launch + flops / gpu.flops + bytes / gpu.memory_bandwidth) * factor
        if machines is None:
            return (server_type.overhead + flops / server_type.flops + bytes / server_type.memory_bandwidth) * factor
        found = self._alone.get(server)
        if found is None:
            place: Place = ("graph", server)
            lift = server_type.lift(1)
            found = self._alone[server] = (
                ((machines.cores(place),), server_type.flops * lift),
                ((machines.memory(place),), server_type.memory_bandwidth * lift),
            )
        (cores, flops_alone), (memory, bytes_alone) = found
        parts = (Taken(cores, flops, flops_alone), Taken(memory, bytes, bytes_alone))
        return _duration(server_type.overhead, parts, factor)

    def tensor_task(
        self,
        key: tuple[int, ...],
        *,
        flops: Amount,
        bytes_in: Amount,
        bytes_out: Amount,
        server: int = 0,
        requests: int = 0,
        elementwise: Amount = 0,
        cold: bool = False,
        late: Late = NOTHING_LATE,
    ) -> Duration:
        """What one function needs, from the request to the answer.

        Args:
            key: which task it is.
            flops: its floating-point operations, ≥ 0.
            bytes_in: what it fetches (rows, parameters), ≥ 0.
            bytes_out: what it returns (rows, gradients), ≥ 0.
            server: the number of the graph server that it fetches from.
            requests: transfers that it asks for; on one machine alone, as the next.
            elementwise: of `flops`, those that are not of products of matrices.
            cold: whether the function has to be started first; with contention alone.
            late: what it still fetches, and what it computes of that, once it has begun to compute.

        Raises:
            ValueError: a negative amount.
        """
        if not (flops >= 0 and bytes_in >= 0 and bytes_out >= 0):
            _refuse(flops=flops, bytes_in=bytes_in, bytes_out=bytes_out)
        function, machines = self.cluster.function, self.machines
        factor = function.variation.factor(self.seed, "tensor", key)
        if (one := self.cluster.one_machine) is not None:
            return _duration(0.0, self._tensor_parts(one, flops, elementwise, bytes_in + bytes_out, requests), factor)
        speed = function.flops * function.virtual_cpus
        first, then = (flops - late.flops) / speed, late.flops / speed
        if machines is None:
            both = max(first, late.bytes / function.network_bandwidth) + then
            moved = (bytes_in - late.bytes + bytes_out) / function.network_bandwidth
            return (function.overhead + moved + both) * factor
        place: Place = ("graph", server)
        alone = min(function.bandwidth_among(1), self.cluster.graph_server.network_bandwidth)
        computed: tuple[float | Meanwhile, ...] = (first,)
        if late.bytes:
            computed = (
                Meanwhile(first, machines.passing, Taken((machines.out(place),), late.bytes, alone, FUNCTIONS)),
                then,
            )
        parts = (
            Taken((machines.out(place),), bytes_in - late.bytes, alone, FUNCTIONS),
            *computed,
            Taken((machines.into(place),), bytes_out, alone, FUNCTIONS),
        )
        return _duration(function.overhead + (function.cold_start if cold else 0.0), parts, factor)

    def message(
        self,
        key: tuple[int, ...],
        *,
        bytes: Amount,
        sender: Place = ("graph", 0),
        receiver: Place = ("graph", 1),
    ) -> Duration:
        """What it takes until a message between servers has arrived.

        It is on its way through all networks at once, and there when the last of them has carried it.

        Args:
            key: which message it is.
            bytes: how long it is, ≥ 0.
            sender: from which server; it does not matter without contention.
            receiver: to which server; likewise.

        Raises:
            ValueError: a negative amount.
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
        if (one := self.cluster.one_machine) is not None:
            if not one.processes:
                return _duration(0.0, (self._reading(bytes),), factor)
            duration = _duration(
                self.cluster.latency + one.message_wait, (Taken(ways, bytes, speed, MESSAGES),), factor
            )
            if not bytes:
                return duration
            assert isinstance(duration, tuple)
            *before, uses = duration
            assert isinstance(uses, tuple)
            # Either end has a thread that is busy with it.
            return (*before, (*uses, Use((self._cores,) * 2, bytes / speed, PASSING)))
        # As `_duration`, at once: of all that a simulation asks for, this is most.
        latency = self.cluster.latency
        seconds = max(0.0, latency + (factor - 1) * (latency + bytes / speed))
        return (seconds, (Use(ways, float(bytes), MESSAGES),)) if bytes else seconds

    def update(self, key: tuple[int, ...], *, bytes: Amount) -> Duration:
        """An optimizer step on one thread of a parameter server, whose other threads have nothing to do.

        Args:
            key: which step it is.
            bytes: the size of the parameters, ≥ 0.

        Raises:
            ValueError: a negative amount.
        """
        if not bytes >= 0:
            _refuse(bytes=bytes)
        server = self.cluster.parameter_server
        if self.cluster.one_machine is not None:
            factor = server.variation.factor(self.seed, "update", key)
            return _duration(0.0, (self._passing(server.overhead), self._reading(_UPDATE_PASSES * bytes)), factor)
        speed = server.memory_bandwidth * (server.lift(1) if self.cluster.contention else 1)
        median = server.overhead + _UPDATE_PASSES * bytes / speed
        return median * server.variation.factor(self.seed, "update", key)

    def _as_described(
        self, measured: MeasuredSpeeds, flops: Amount, bytes: Amount, rows: RowsRead | None, elementwise: Amount | None
    ) -> tuple[Amount, Amount]:
        """Operations and bytes that take as long by the description's speeds as a task was measured to."""
        server = self.cluster.graph_server
        lift = server.lift(1)
        if elementwise is not None:
            return measured.stage(flops, elementwise, bytes, 1) * server.flops * lift, 0.0
        seconds, held_back = measured.reading(bytes, rows), measured.held_back(rows)
        flops += (1 - held_back) * seconds * server.flops * lift
        return flops, held_back * seconds * server.memory_bandwidth * lift

    # Parts of tasks of one machine.

    def _tensor_parts(
        self, one: OneMachine, flops: Amount, elementwise: Amount, moved: Amount, requests: int
    ) -> Sequence[float | Taken]:
        assert self.measured is not None
        computing = one.tensor_slowdown * self.measured.stage(flops, elementwise, moved, one.tensor_threads)
        computed = Taken((self._cores,), computing, 1.0, TENSOR)
        overhead = self._passing(self.cluster.function.overhead)
        if not one.workers:
            return overhead, computed
        link = requests * one.request_seconds + (moved / one.link_bandwidth if one.link_bandwidth else 0.0)
        return overhead, link, self._passing(moved / self.cluster.function.lone_bandwidth, threads=2), computed

    def _passing(self, seconds: float, threads: int = 1) -> Taken:
        """Seconds of as many threads at a time: of both ends, where data are sent."""
        return Taken((self._cores,) * threads, seconds, 1.0, PASSING)

    def _reading(self, bytes: Amount) -> Taken:
        server = self.cluster.graph_server
        return Taken((self._cores,), bytes, server.memory_bandwidth * server.lift(1), READING)

    @property
    def _cores(self) -> Shared:
        assert self.machines is not None
        return self.machines.of_one


class Taken(NamedTuple):
    """A part of a task that others slow down.

    Attributes:
        of: what is used, all at once.
        amount: how much of each.
        alone: how much of it in a second where nobody else uses any of them.
        kind: as of `Use`.
    """

    of: tuple[Shared, ...]
    amount: Amount
    alone: float
    kind: int = 0


class Meanwhile(NamedTuple):
    """Seconds, and beside them something that others slow down; over when both are.

    Attributes:
        seconds: ≥ 0.
        passing: serves seconds, to everybody one per second.
        beside: what goes on meanwhile; some of it.
    """

    seconds: float
    passing: Shared
    beside: Taken


def _duration(first: float, parts: Sequence[float | Taken | Meanwhile], factor: float) -> Duration:
    """Seconds and parts one after the other; the seconds are such that the whole takes `factor` times its median alone."""
    alone = first
    later: list[float | tuple[Use, ...]] = []
    for part in parts:
        if isinstance(part, Taken):
            of, amount, speed, kind = part
            if amount:
                alone += amount / speed
                later.append((Use(of, float(amount), kind),))
        elif isinstance(part, Meanwhile):
            seconds, passing, (of, amount, speed, kind) = part
            alone += max(seconds, amount / speed)
            use = Use(of, float(amount), kind)
            later.append((use, Use((passing,), seconds)) if seconds else (use,))
        else:
            alone += part
            later.append(part)
    seconds = max(0.0, first + (factor - 1) * alone)
    return (seconds, *later) if later else seconds


def _refuse(**amounts: Amount) -> NoReturn:
    for name, amount in amounts.items():
        if not amount >= 0:
            raise ValueError(f"{name} must be ≥ 0, got {amount}")
    raise AssertionError("one of them is wrong")
