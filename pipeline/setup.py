"""Setup of a pipeline: configuration checks, the layout of the graph, and the parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax

from dorylax.cost import Cluster, find_cluster
from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout, Partition, lay_out, partition
from dorylax.graph.shard import AnyShard
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.interval_data import interval_data
from dorylax.pipeline.messages import Started, Walked
from dorylax.pipeline.parameters import Applied, ParameterServers
from dorylax.pipeline.parameters.compute import ParameterWorkers
from dorylax.pipeline.parameters.step_counts import uncounted
from dorylax.pipeline.placement import Placement, rows_of
from dorylax.pipeline.prepare import Prepared, prepare
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.saved import Saved, remembered, stability
from dorylax.pipeline.stages import StageFunction
from dorylax.pipeline.tensor_calls import make_autotuner, make_controller
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.serverless.backends.base import Backend
from dorylax.settings.errors import ConfigError


def prepared_for(
    config: PipelineConfig,
    parts: ModelParts,
    data: Dataset | AbstractData,
    optimizer: optax.GradientTransformation,
    loss: RowFunction,
) -> Prepared:
    """Check the configuration against the data and the optimizer, and prepare the model.

    Args:
        config: Settings of the pipeline.
        parts: The model.
        data: The data set, or its shapes.
        optimizer: Any optax transformation that does not evaluate the loss itself.
        loss: Loss per vertex, `(output, labels) -> [V]`.

    Returns:
        The model's plan and functions.

    Raises:
        ConfigError: The configuration does not fit the data or the optimizer; the error names the key.
        SplitError: The model cannot be split.
    """
    check_counts(config, data.graph.num_vertices)
    check_optimizer(optimizer, parts.params, config)
    spec = DataSpec.of(data, parts.keywords)
    price = config.expected_stale_price
    return prepare(parts, spec, config.passes, loss=loss, stale_price=price, workers=config.workers)


def check_counts(config: PipelineConfig, num_vertices: int) -> None:
    """Check that the graph has at least one vertex per server and per interval.

    Raises:
        ConfigError: There are more servers or intervals than vertices; the error names the key.
    """
    if config.servers > num_vertices:
        raise ConfigError.of(
            "pipeline.servers", f"must be ≤ {num_vertices}, the graph's vertices, got {config.servers}"
        )
    if config.intervals * config.servers > num_vertices:
        raise ConfigError.of(
            "pipeline.intervals",
            f"= {config.intervals} on {config.servers} servers are {config.intervals * config.servers} intervals, more "
            f"than the graph's {num_vertices} vertices: give fewer",
        )


def check_optimizer(optimizer: optax.GradientTransformation, params: Tree, config: PipelineConfig) -> None:
    """Check that an optimizer with a step counter takes only one step per epoch.

    Raises:
        ConfigError: Updates are per interval and the optimizer counts steps; the error names the counter.
    """
    if config.update == "per_interval":
        for count in uncounted(jax.eval_shape(optimizer.init, params)):
            raise ConfigError.of(
                "pipeline.update",
                f"= per_interval makes {config.servers * config.intervals} steps an epoch, which the optimizer would count "
                f"as epochs ({count}): choose pipeline.update=per_epoch",
            )


def prices_for(config: PipelineConfig) -> Cluster | None:
    """Return the cluster whose prices apply to a run, or None for a free run."""
    billed = config.clock == "virtual" or config.tensor.backend != "inline"
    return find_cluster(config.cluster) if billed else None


def layout_for(graph: CompressedGraph, config: PipelineConfig, seed: int) -> Layout:
    """Partition a graph or load its partition, and lay the parts out in intervals.

    Args:
        graph: The whole graph.
        config: Numbers of servers and intervals, and the partitioner or the saved partition.
        seed: Seed of randomized partitioners.

    Raises:
        ConfigError: The graph cannot be divided as configured, or the loaded partition does not fit it.
    """
    try:
        if config.partition is None:
            found = partition(graph, config.servers, method=config.partitioner, balance=config.balance, seed=seed)
        else:
            found = Partition.load(config.partition)
            found.check(graph)
    except InputError as error:
        raise ConfigError.of(
            "pipeline.partition" if config.partition else "pipeline.partitioner", f"cannot be used: {error}"
        ) from error
    if found.num_parts != config.servers:
        raise ConfigError.of(
            "pipeline.servers", f"= {config.servers}, but the partition in {config.partition} is for {found.num_parts}"
        )
    try:
        return lay_out(graph, found, config.intervals)
    except InputError as error:
        even = "" if config.partitioner == "range" else ", or pipeline.partitioner=range, whose parts are even"
        raise ConfigError.of("pipeline.intervals", f"= {config.intervals} do not fit: {error}{even}") from error


def graph_host(
    config: PipelineConfig,
    prepared: Prepared,
    context: HostContext,
    shard: AnyShard,
    values: Mapping[int, Any],
    *,
    resources: Resources,
    functions: Mapping[int, StageFunction],
    backend: Backend,
    gate: Gate,
    recorder: Recorder,
    report: Callable[[Started | Walked], None],
    prices: Cluster | None,
) -> GraphHost:
    """Create a graph server and its intervals.

    Args:
        config: Settings of the pipeline.
        prepared: The plan and its functions.
        context: State shared with the other servers.
        shard: The server's part of the graph.
        values: The server's data by position of the input, see `interval_data`.
        resources: Numbers of threads and slots.
        functions: Compiled functions of the stages and driver tasks that run here, by task index.
        backend: Backend of tensor tasks.
        gate: Gate of the server's intervals.
        recorder: Records tasks, messages and reads.
        report: Reports the progress of intervals to the ledger.
        prices: Cluster whose prices decide between functions and the server; None for a free run.
    """
    autotuner = make_autotuner(config, resources)
    slots = resources.slots if autotuner is None else autotuner.limit
    server = GraphServer(
        context,
        shard,
        workers=context.clock.workers(f"graph {shard.server}", resources.graph_threads),
        functions=functions,
        controller=make_controller(config, slots, backend, context.clock, recorder.calls(shard.server)),
        autotuner=autotuner,
        gate=gate,
        recorder=recorder,
        placement=Placement.of(
            context.plan,
            rows_of(shard),
            sizes=context.sizes,
            config=config,
            cluster=prices,
            resources=resources,
        ),
    )
    return GraphHost(server, interval_data(prepared, values, shard, context.sizes), report)


class Beginnings(NamedTuple):
    """Initial state of the parameter servers.

    Attributes:
        params: Parameters of the model.
        opt_state: State of the optimizer; None for a new one.
        state: Other state of the model.
        saved: Saved state of a resumed run; None for a new run.
        epoch: First epoch to train.
        due: Epoch of each interval's first gradient that the version lacks (`Sequencer`); None for `epoch` everywhere.
    """

    params: Tree
    opt_state: Tree
    state: Tree
    saved: Saved | None
    epoch: int
    due: Sequence[int] | None = None


def parameter_servers(
    config: PipelineConfig,
    prepared: Prepared,
    optimizer: optax.GradientTransformation,
    driver: Driver,
    start: Beginnings,
    *,
    context: HostContext,
    recorder: Recorder,
    on_applied: Callable[[Applied], None],
    here: Sequence[int] | None = None,
) -> ParameterServers:
    """Create the parameter servers of a run, or those hosted by this process.

    Args:
        config: Settings of the pipeline.
        prepared: The plan and its functions.
        optimizer: An optax transformation.
        driver: Computes gradients and state that have no rows.
        start: Initial state of the servers.
        context: State shared with the hosts.
        recorder: Records pulls, pushes and updates.
        on_applied: Called with applied gradients.
        here: Indices of the servers to create; None for all.
    """
    saved = start.saved
    return ParameterServers(
        start.params,
        start.state,
        optimizer,
        num_servers=config.parameter_servers,
        num_intervals=len(context.homes),
        stages=context.plan.stages_with_sums,
        finish=driver.finish,
        advance=driver.advance if prepared.driver.changing else None,
        transport=context.transport,
        spawn=context.clock.spawn,
        on_applied=on_applied,
        update=config.update or "per_epoch",
        interval_step_scaling=config.interval_step_scaling,
        sync_every=config.sync_every,
        gradient_share=config.gradient_share,
        ahead_share=config.ahead_share,
        predict_weights=config.predict_weights or "none",
        stability_gate=config.gated,
        remembered=None if saved is None else remembered(saved),
        stability=None if saved is None else stability(saved),
        compute=ParameterWorkers(config.parameter_servers, context.clock, context.times, recorder),
        opt_state=start.opt_state,
        version=0 if saved is None else int(saved.record["version"]),
        first_epoch=start.epoch,
        due=start.due,
        here=here,
        recorder=recorder,
    )
