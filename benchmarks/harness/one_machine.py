"""Predicts epochs on the real clock whose servers and workers are threads and processes of one measured machine.

Tasks of a pipeline are slower than the same work in a loop, because caches are cold and cores asleep. Reference runs on this
machine give one slowdown each for graph tasks, tensor tasks and calls of workers. A simulation of the same runs finds it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, final

import optax

from dorylax.clock import Duration, Use, VirtualClock
from dorylax.clock.sharing import Speeds
from dorylax.config import RunConfig
from dorylax.cost import Cluster, Instance, Machines, RowsRead, TimeModel
from dorylax.cost.machines import MESSAGES, Place
from dorylax.cost.time_model import NO_ROWS, UPDATE_PASSES, Amount, Streamed, TimedPart, in_sequence, times_of, using
from dorylax.graph.dataset import Dataset
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.resources import Resources, graph_hosts
from dorylax.pipeline.timeline import Resource, Span
from dorylax.program.model.kinds import take_apart
from dorylax.simulation.run import Inputs, settling, simulate
from dorylax.simulation.scenario import Scenario
from dorylax.trainer.from_config import build_model, prepare_data
from dorylax.trainer.step.objective import Objective

Settings = Mapping[str, Any]

PASSING, READING, TENSOR = range(3)
"""Kinds of uses of a machine's cores: seconds of a thread, bytes that it reads, seconds of a tensor task's threads."""

_WORKER = {"tensor.backend": "local", "tensor.placement": "functions", "tensor.workers": 1}
_GCN = {"data.name": "communities", "model.name": "gcn", "model.dropout": 0.5, "pipeline.mode": "no-pipe"}
_TINY = {**_GCN, "data.size": "tiny", "model.hidden_features": 16, "pipeline.intervals": 16}
_SMALL = {**_GCN, "data.size": "small", "model.hidden_features": 64}
RUNS: Mapping[str, Settings] = {
    "threads": {**_SMALL, "pipeline.intervals": 4},
    "workers": {**_SMALL, "pipeline.intervals": 4, **_WORKER},
    "processes": {**_SMALL, "pipeline.intervals": 2, "pipeline.servers": 2, "pipeline.hosts": "processes"},
}
"""Settings of the reference runs."""
REFERENCES: Mapping[str, tuple[str, Resource]] = {
    "graph": ("threads", "graph"),
    "tensor": ("threads", "tensor"),
    "call": ("workers", "tensor"),
    "process graph": ("processes", "graph"),
    "process tensor": ("processes", "tensor"),
    "message": ("processes", "network"),
}
"""Run and resource of the tasks that are measured."""
_ROUNDS, _NEARLY = 20, 0.01


class References(NamedTuple):
    """Measurements on this machine.

    Attributes:
        tensor: Seconds inside a tensor task that computes next to nothing.
        call: Seconds of a call of a worker process that computes next to nothing.
        tasks: Mean seconds of the tasks of each entry of `REFERENCES`.
    """

    tensor: float
    call: float
    tasks: Mapping[str, float]


def epochs_of(config: RunConfig, data: Dataset, epochs: int) -> Iterator[tuple[float, list[Span]]]:
    """Trains on the real clock; seconds and tasks of as many epochs, after those in which the run settles."""
    assert config.pipeline is not None
    pipeline = (Pipeline if config.pipeline.hosts == "inline" else HostsPipeline).of(
        take_apart(build_model(config, data), data.graph),
        data,
        optax.adam(0.01),
        config.pipeline,
        loss=Objective.of(None, data).rows,
        seed=config.train.seed,
    )
    spans = list[Span]()
    parts = pipeline.parts
    with closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as running:
        for _ in range(settling(config.pipeline) + 1):
            running.run_epoch()
        for _ in range(epochs):
            spans.clear()
            yield running.run_epoch().seconds, spans


def measured_references(epochs: int) -> References:
    """Runs the reference runs, for so many epochs each."""

    def means(settings: Settings, resources: Sequence[Resource]) -> list[float]:
        config = RunConfig.resolve(settings)
        found: list[list[float]] = [[] for _ in resources]
        for _, spans in epochs_of(config, prepare_data(config.data), epochs):
            for each, resource in zip(found, resources, strict=True):
                each.append(statistics.mean(one.end - one.start for one in spans if one.resource == resource))
        return [statistics.median(each) for each in found]

    tasks: dict[str, float] = {}
    for run, settings in RUNS.items():
        named = {name: resource for name, (of, resource) in REFERENCES.items() if of == run}
        tasks |= dict(zip(named, means(settings, list(named.values())), strict=True))
    (tensor,), (call,) = means(_TINY, ["tensor"]), means({**_TINY, **_WORKER}, ["tensor"])
    return References(tensor, call, tasks)


@dataclasses.dataclass(frozen=True)
class OneMachine(Cluster):
    """One machine, the cluster's graph server, divided among all parts of a run.

    Attributes:
        tensor_threads: Threads of a tensor task (≥ 1).
        workers: Processes for tensor tasks; 0 if threads of servers run them on rows in place.
        processes: Whether servers are processes, which copy messages.
        request_seconds: Artificial delay of each request of a worker, in seconds.
        link_bandwidth: Bytes per second of a worker's link in both directions together; 0 for no limit.
        graph: Ratio of the time of graph tasks to that of the same work alone, without task overhead.
        tensor: Ratio for tensor tasks.
        message_wait: Seconds until a message between processes is handled, at both ends together.
    """

    tensor_threads: int = 1
    workers: int = 0
    processes: bool = False
    request_seconds: float = 0.0
    link_bandwidth: float = 0.0
    graph: float = 1.0
    tensor: float = 1.0
    message_wait: float = 0.0

    @property
    def ships(self) -> bool:
        """See `Cluster`."""
        return self.workers > 0


def cores(instance: Instance, tensor_threads: int) -> Speeds:
    """Speeds by kind of use, for tensor tasks of so many threads each. More threads than cores take turns."""
    total = instance.total_memory_bandwidth

    def speeds(counts: Sequence[int]) -> tuple[float, float, float]:
        _, reading, tensor = counts
        threads = max(1, sum(counts) + (tensor_threads - 1) * tensor)
        busy = min(threads, instance.threads)
        share = instance.lift(busy) / instance.lift(1) * busy / threads
        read = instance.memory_bandwidth * instance.lift(1) * share
        if total and reading:
            read = min(read, total / reading)
        return share, read, share

    return speeds


@final
class OneMachineTimes(TimeModel):
    """Durations of tasks that share the cores of one machine, whichever server they are of."""

    def __init__(self, cluster: OneMachine, seed: int, machines: Machines) -> None:
        super().__init__(cluster, seed, machines)
        self._one = cluster
        speeds = cores(cluster.graph_server, cluster.tensor_threads)
        self._cores = machines.shared("machine", ("graph", 0), lambda: speeds, kinds=3)

    def graph_task(
        self,
        key: tuple[int, ...],
        *,
        flops: Amount,
        bytes: Amount,
        server: int = 0,  # noqa: ARG002
        rows: RowsRead | None = None,
        elementwise: Amount | None = None,
    ) -> Duration:
        """See `TimeModel`."""
        assert self.measured is not None
        flops, bytes = self.as_described(self.measured, flops, bytes, rows, elementwise)
        server_type = self._one.graph_server
        computed = self._one.graph * flops / (server_type.flops * server_type.lift(1))
        parts = self._passing(server_type.overhead + computed), self._reading(self._one.graph * bytes)
        return in_sequence(0.0, parts, server_type.variation.factor(self.seed, "graph", key))

    def tensor_task(
        self,
        key: tuple[int, ...],
        *,
        flops: Amount,
        bytes_in: Amount,
        bytes_out: Amount,
        server: int = 0,  # noqa: ARG002
        requests: int = 0,
        elementwise: Amount = 0,
        cold: bool = False,  # noqa: ARG002
        streamed: Streamed = NO_ROWS,  # noqa: ARG002
    ) -> Duration:
        """See `TimeModel`."""
        assert self.measured is not None
        one, function, moved = self._one, self._one.function, bytes_in + bytes_out
        seconds = one.tensor * self.measured.stage(flops, elementwise, moved, one.tensor_threads)
        parts = [self._passing(function.overhead)]
        if one.workers:
            link = requests * one.request_seconds + (moved / one.link_bandwidth if one.link_bandwidth else 0.0)
            parts += [(link, link), self._passing(moved / function.lone_bandwidth, threads=2)]
        parts.append(using((self._cores,), seconds, 1.0, TENSOR))
        return in_sequence(0.0, parts, function.variation.factor(self.seed, "tensor", key))

    def message(
        self,
        key: tuple[int, ...],
        *,
        bytes: Amount,
        sender: Place = ("graph", 0),
        receiver: Place = ("graph", 1),
    ) -> Duration:
        """See `TimeModel`: threads read messages, and processes carry them, while a thread at either end is busy."""
        assert self.machines is not None
        factor = self._one.graph_server.variation.factor(self.seed, "message", key)
        if not self._one.processes:
            return in_sequence(0.0, [self._reading(bytes)], factor)
        ways, speed = self.machines.between(sender, receiver)
        seconds, uses = using(ways, bytes, speed, MESSAGES)
        if isinstance(uses, tuple) and uses:
            uses = (*uses, Use((self._cores,) * 2, seconds, PASSING))
        return in_sequence(self._one.latency + self._one.message_wait, [(seconds, uses)], factor)

    def update(self, key: tuple[int, ...], *, bytes: Amount) -> Duration:
        """See `TimeModel`."""
        server = self._one.parameter_server
        parts = self._passing(server.overhead), self._reading(UPDATE_PASSES * bytes)
        return in_sequence(0.0, parts, server.variation.factor(self.seed, "update", key))

    def _passing(self, seconds: float, threads: int = 1) -> TimedPart:
        """Seconds of several threads at a time, such as those at both ends of a transfer."""
        return using((self._cores,) * threads, seconds, 1.0, PASSING)

    def _reading(self, bytes: Amount) -> TimedPart:
        server = self._one.graph_server
        return using((self._cores,), bytes, server.memory_bandwidth * server.lift(1), READING)


@times_of.register
def _(cluster: OneMachine, seed: int, clock: VirtualClock, servers: int) -> TimeModel:
    return OneMachineTimes(cluster, seed, Machines(cluster, clock, servers))


class Slowdown(NamedTuple):
    """Ratios of the time of tasks within a pipeline to that of the same work alone, and `message_wait` (`OneMachine`)."""

    graph: float = 1.0
    tensor: float = 1.0
    message_wait: float = 0.0


_NONE = Slowdown()


@final
class Here:
    """Scenarios of runs on this machine.

    Args:
        cluster: Its graph server is this machine, as measured by `dorylax calibrate`.
        references: Measurements on the same machine.
    """

    def __init__(self, cluster: Cluster, references: References) -> None:
        assert cluster.measured is not None, "the cluster is no machine that was measured"
        self._cluster, self._measured, self._references = cluster, cluster.measured, references
        self._slowdowns: dict[str, Slowdown] = {}

    def scenario(self, name: str, settings: Settings) -> Scenario:
        """Returns the scenario of a run with these settings, which are those of `dorylax train`."""
        config = RunConfig.resolve(settings)
        assert config.pipeline is not None
        found = self._slowdown("threads" if config.pipeline.hosts == "inline" else "processes")
        if config.pipeline.tensor.backend != "inline":
            found = found._replace(tensor=self._slowdown("workers").tensor)
        return self._scenario(name, config, found)

    def _slowdown(self, run: str) -> Slowdown:
        """Returns the slowdown with which the simulation of a reference run takes the measured mean times.

        Tasks that slow each other down meet more others if they are longer. So the run is simulated again with each result,
        and half of the error is corrected each time.
        """
        if (known := self._slowdowns.get(run)) is not None:
            return known
        config, inputs, slow = RunConfig.resolve(RUNS[run]), Inputs(), Slowdown()
        around = self._measured.at("task", part="around").median
        for _ in range(_ROUNDS):
            tasks = simulate(self._scenario("reference", config, slow), inputs=inputs).tasks
            errors = []
            for name, (of, resource) in REFERENCES.items():
                if of != run:
                    continue
                spans = [one for one in tasks if one.resource == resource]
                expected = sum(task.seconds for task in spans) / sum(task.number for task in spans)
                taken = self._references.tasks[name]
                if resource == "network":
                    slow = slow._replace(message_wait=max(0.0, slow.message_wait + (taken - expected) / 2))
                else:
                    expected -= around
                    slow = slow._replace(**{resource: getattr(slow, resource) * math.sqrt(taken / expected)})
                errors.append(abs(taken / expected - 1))
            if max(errors) < _NEARLY:
                break
        self._slowdowns[run] = slow
        return slow

    def _scenario(self, name: str, config: RunConfig, slow: Slowdown) -> Scenario:
        assert config.pipeline is not None
        pipeline, machine = self.placed(config.pipeline, slow)
        return Scenario(name, "functions", config.model_copy(update={"pipeline": pipeline}), None, machine)

    def placed(self, pipeline: PipelineConfig, slow: Slowdown = _NONE) -> tuple[PipelineConfig, OneMachine]:
        """Returns a pipeline on the virtual clock, and the machine on which it takes as long as the given one really takes.

        Args:
            pipeline: Real pipeline; tensor tasks `inline` or in `local` workers, servers in one process or in processes.
            slow: Slowdown of its tasks.
        """
        tensor, cluster, threads = pipeline.tensor, self._cluster, self._cluster.graph_server.threads
        inline, processes = tensor.backend == "inline", pipeline.hosts == "processes"
        found, alone = Resources.of(pipeline, None, threads), threads
        if processes:
            found = Resources.of_host(pipeline, threads)
            found = found._replace(workers=found.workers * pipeline.servers)
            alone = max(1, threads // graph_hosts(pipeline))
        around, inside = (self._measured.at("task", part=part).median for part in ("around", "inside"))
        server = dataclasses.replace(cluster.graph_server, overhead=around + slow.graph * inside)
        function = dataclasses.replace(
            cluster.function,
            overhead=around + slow.tensor * (self._references.tensor if inline else self._references.call),
            lone_bandwidth=self._measured.at("transfer", transport="ipc").median / slow.tensor,
            cold_start=0.0,
            variation=server.variation,
        )
        values = {field.name: getattr(cluster, field.name) for field in dataclasses.fields(Cluster)}
        values |= {"contention": True, "graph_server": server, "functions": found.slots, "function": function}
        machine = OneMachine(
            **values,
            tensor_threads=alone if inline else 1,
            workers=found.workers,
            processes=processes,
            request_seconds=tensor.latency,
            link_bandwidth=tensor.bandwidth or 0.0,
            **slow._asdict(),
        )
        virtual = {"backend": "inline", "workers": None, "slots": found.slots, "transport": "ipc", "bandwidth": None}
        virtual |= {"relaunches": 0 if inline else tensor.relaunches, "latency": 0.0, "latency_sigma": 0.0}
        shown = {"clock": "virtual", "hosts": "inline", "num_hosts": None, "graph_threads": found.graph_threads}
        return pipeline.model_copy(update={**shown, "tensor": tensor.model_copy(update=virtual)}), machine
