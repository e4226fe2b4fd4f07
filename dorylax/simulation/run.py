"""Simulates scenarios: the engine on the virtual clock, on abstract arrays."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import final

from dorylax.cost import Calls
from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.shard import AnyShard
from dorylax.graph.sharded_data import ShardEntry
from dorylax.memory.hosts import Cut, graph_server
from dorylax.memory.phases import CODE
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.prepare import check_counts, layout_for
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.stages import StageSizes, stage_cost, stage_sizes
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.timing import timed_pipeline
from dorylax.program.model.kinds import keywords_of, name_of, take_apart
from dorylax.program.tasks.steps import Step
from dorylax.settings.errors import ConfigError
from dorylax.simulation.result import Simulated, Task, Utilisation
from dorylax.simulation.scenario import Scenario, ScenarioError
from dorylax.store.servers import GraphServerMetrics, ServerMetrics
from dorylax.trainer.from_config import build_model, prepare_data
from dorylax.trainer.step.objective import Objective

_OBJECTS = 1_000_000
"""New objects between two garbage collections."""


@final
class Inputs:
    """Makes the inputs of simulations; keeps the last data set and the last shards, which many points of a search share."""

    def __init__(self) -> None:
        self._data: tuple[object, Dataset] | None = None
        self._shards: tuple[object, Sequence[AnyShard]] | None = None

    def of(self, scenario: Scenario) -> tuple[Dataset | AbstractData, DataShape, Sequence[AnyShard]]:
        """Return the data set of a scenario, or an abstract one, its sizes, and the shard of each server.

        Raises:
            ConfigError: There are more servers or intervals than vertices, or the partition does not fit.
            ValueError, OSError: The data set cannot be loaded.
        """
        graph, pipeline, seed = scenario.graph, scenario.pipeline, scenario.config.train.seed
        data: Dataset | AbstractData
        if graph is None:
            data = self._dataset(scenario)
            check_counts(pipeline, data.graph.num_vertices)
            shape = DataShape.of(data)
        else:
            check_counts(pipeline, graph.vertices)
            shape = DataShape(graph.vertices, graph.edges, graph.features, graph.classes)
            data = abstract_data(shape)
        names = ("servers", "intervals", "partitioner", "balance", "partition")
        key = (graph or scenario.config.data, seed, *(getattr(pipeline, name) for name in names))
        if self._shards is None or self._shards[0] != key:
            self._shards = None  # makes room
            if isinstance(data, Dataset):
                self._shards = key, list(Cutting(data.graph, layout_for(data.graph, pipeline, seed)))
            else:
                assert graph is not None
                self._shards = key, graph.degrees.shards(pipeline.servers, pipeline.intervals)
        return data, shape, self._shards[1]

    def _dataset(self, scenario: Scenario) -> Dataset:
        config = scenario.config.data
        if self._data is None or self._data[0] != config:
            self._data = None
            self._data = config, prepare_data(config)
        return self._data[1]


def simulate(
    scenario: Scenario,
    *,
    epochs: int | None = None,
    inputs: Inputs | None = None,
    trace: Trace | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> Simulated:
    """Simulate the time and cost of a run.

    Args:
        scenario: The run.
        epochs: Number of epochs to simulate (≥ 1), at most those of the run. None: two more than it takes to settle.
        inputs: Cache of inputs, to share between simulations; None for none.
        trace: Called with the span of every task.
        on_epoch: Called after each epoch with the number of finished epochs.

    Raises:
        ConfigError: The configuration does not fit the graph.
        ScenarioError: The run does not fit the memory of its servers, GPUs or functions.
        SplitError: The model cannot be split.
        ValueError, OSError: The data set cannot be loaded.
    """
    config, pipeline = scenario.config, scenario.pipeline
    first = settling(pipeline)
    made, shape = pipeline_of(scenario, inputs)
    check_memory(made, shape)
    counts, spent = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
    ran = Counter[tuple[int | None, bool]]()  # by index of the step, and whether on a function

    def add(span: Span) -> None:
        key = (span.name.partition(" → ")[0], span.resource)  # messages to all servers count together
        ran[span.task, span.resource == "tensor"] += 1
        counts[key] += 1
        spent[key] += span.end - span.start
        if trace is not None:
            trace(span)

    with rarely_collected():
        run = made.start(made.parts.params, None, made.parts.state, trace=add)
        try:
            prepare = run.seconds
            calls, seconds, metrics = [copy.copy(run.calls)], list[float](), list[ServerMetrics]()
            counts.clear()
            spent.clear()
            ran.clear()
            for epoch in range(min(first + 2 if epochs is None else epochs, config.train.epochs)):
                found = run.run_epoch()
                seconds.append(found.seconds - (prepare if epoch == 0 else 0.0))
                calls.append(copy.copy(run.calls))
                metrics += found.servers
                if on_epoch is not None:
                    on_epoch(epoch + 1)
        finally:
            run.close()
    tasks = (Task(*key, count, spent[key]) for key, count in counts.items())
    each = [Calls(b.requests - a.requests, b.milliseconds - a.milliseconds) for a, b in pairwise(calls)]
    stages = [step for step in made.prepared.plan.epoch if _on_worker(step)]
    if scenario.cluster.functions and any(ran[step.index, False] for step in stages):
        check_memory(made, shape, on_servers=True)
    traffic = _traffic(made, shape, ran) if scenario.cluster.ships else (0.0, 0.0)
    return Simulated(
        name=scenario.name,
        backend=scenario.backend,
        cluster=scenario.cluster,
        servers=pipeline.servers,
        parameter_servers=pipeline.parameter_servers,
        intervals=pipeline.intervals,
        prepare=prepare,
        epochs=tuple(seconds),
        settling=first,
        calls=(calls[0], *each),
        total_epochs=config.train.epochs,
        tasks=tuple(sorted(tasks, key=lambda task: (-task.seconds, task.name))),
        utilisation=_utilisation(scenario, metrics, traffic, seconds),
    )


def pipeline_of(scenario: Scenario, inputs: Inputs | None = None) -> tuple[Pipeline, DataShape]:
    """Return the simulated pipeline, and the sizes of its data; arguments and errors as for `simulate`."""
    data, shape, shards = (Inputs() if inputs is None else inputs).of(scenario)
    model = build_model(scenario.config, data)
    if scenario.graph is not None and (needed := keywords_of(model).required):
        raise ConfigError.of(
            "graph",
            f"holds sizes alone, but {name_of(model)} needs the input {needed[0]!r}: give data.name instead, a data set "
            "with such an input, whose values do not matter",
        )
    made = timed_pipeline(
        take_apart(model, data.graph),
        data,
        shards,
        scenario.pipeline,
        cluster=scenario.cluster,
        loss=Objective.of(None, data).rows,
        seed=scenario.config.train.seed,
    )
    return made, shape


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect garbage rarely in the body, and exclude existing objects from it.

    A simulation makes hundreds of thousands of small objects a second, hardly any in cycles. By default, Python searches for
    cycles after each 700 of them, also through JAX's hundred thousands of objects: half of the time of a simulation.
    """
    before = gc.get_threshold()
    if not before[0]:  # garbage collection is off
        yield
        return
    gc.freeze()
    gc.set_threshold(max(before[0], _OBJECTS), 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def settling(pipeline: PipelineConfig) -> int:
    """Number of first epochs that differ from later ones.

    Functions start cold in the first epoch. Intervals that may run ahead start in the same epoch, and spread during as many
    epochs as they may be apart.
    """
    return 1 + (pipeline.staleness or 0)


def check_memory(made: Pipeline, shape: DataShape, *, on_servers: bool = False) -> None:
    """Refuse a pipeline whose servers, GPUs or functions have too little memory for their peaks (docs/memory.md).

    Args:
        made: The pipeline.
        shape: Sizes of its data.
        on_servers: Whether servers run stages although there are functions (`tensor.placement=auto`).

    Raises:
        ScenarioError: The memory does not suffice; names both sizes.
    """
    cluster, plan = made.prices, made.prepared.plan
    assert cluster is not None
    sizes = stage_sizes(made.pieces, made.config.edge_chunk)
    calls = [stage_cost(step, sizes.of(step)) for step in plan.steps if _on_worker(step)]
    memory = cluster.function.memory_mb * 2**20
    needed = max((cost.bytes_in + cost.bytes_out for cost in calls), default=0)
    if cluster.functions and needed > memory:
        raise ScenarioError(
            f"a function would hold {needed / 1e9:.2f} GB, and has {memory / 1e9:.2f}: give more intervals, or "
            "function.memory_mb"
        )
    instance = cluster.graph_server
    room, whose = instance.memory, instance.name
    if instance.gpu is not None:
        room, whose = instance.gpu.memory, f"the GPU of {instance.name}"
    entries = [
        ShardEntry("", 0, "", one.bounds, one.edge_bounds, (len(one.ghosts["in"]), len(one.ghosts["out"])))
        for one in made.pieces
    ]
    threads = Resources.of(made.config, cluster, instance.tasks)
    # Functions hold the operands of their calls, threads of servers those of theirs.
    elsewhere = cluster.functions and not on_servers
    threads = threads._replace(workers=1) if elsewhere else threads._replace(slots=threads.graph_threads)
    held = graph_server(shape, Cut.of(entries), [plan], made.config, threads)
    needed = sum(size for name, size in held.items() if instance.gpu is None or name != CODE)
    if 0 < room < needed:
        raise ScenarioError(
            f"a graph server would hold {needed / 1e9:.1f} GB, {whose} has {room / 1e9:.1f}: give more servers"
        )


def _utilisation(
    scenario: Scenario, metrics: Sequence[ServerMetrics], traffic: tuple[float, float], epochs: Sequence[float]
) -> Utilisation:
    """The busy shares; `traffic` is the bytes to all functions and from them in an epoch, `epochs` the seconds of each."""
    pipeline, cluster, seconds = scenario.pipeline, scenario.cluster, sum(epochs)
    graph = [one for one in metrics if isinstance(one, GraphServerMetrics)]
    parameters = [one for one in metrics if not isinstance(one, GraphServerMetrics)]
    found = Resources.of(pipeline, cluster, 1)
    slots = found.slots if cluster.functions else 0
    messages = sum(one.message_bytes for one in graph)
    sent = messages + len(epochs) * traffic[0] + sum(one.bytes_received for one in parameters)
    received = messages + len(epochs) * traffic[1] + sum(one.bytes_sent for one in parameters)
    return Utilisation(
        _share(sum(one.graph_seconds for one in graph), pipeline.servers * found.graph_threads * seconds),
        _share(sum(one.tensor_seconds for one in graph), pipeline.servers * slots * seconds),
        _share(sum(one.busy_seconds for one in parameters), pipeline.parameter_servers * seconds),
        _share(max(sent, received), pipeline.servers * cluster.graph_server.network_bandwidth * seconds),
    )


def _traffic(made: Pipeline, shape: DataShape, ran: Counter[tuple[int | None, bool]]) -> tuple[float, float]:
    """Bytes that functions fetch from graph servers in an epoch, and those that they return."""
    number = made.config.servers * made.config.intervals
    sizes = StageSizes(shape.num_vertices // number, shape.num_edges // number)
    fetched = returned = 0.0
    for step in filter(_on_worker, made.prepared.plan.epoch):
        cost = stage_cost(step, sizes.of(step))
        share = number * _share(ran[step.index, True], ran[step.index, True] + ran[step.index, False])
        fetched, returned = fetched + share * cost.bytes_in, returned + share * cost.bytes_out
    return fetched, returned


def _on_worker(step: Step) -> bool:
    """Whether tensor workers may run the step."""
    return step.kind == "stage" and step.on_worker and step.space is not None


def _share(part: float | int, whole: float | int) -> float:
    return part / whole if whole else 0.0
