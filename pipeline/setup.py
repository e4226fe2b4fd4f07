"""Before a pipeline starts: does the configuration fit graph and optimizer, which vertices go where, parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import optax

from dorylax.cost import Cluster, find_cluster
from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout, Partition, lay_out, partition
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.driver import DrivesEpochs
from dorylax.pipeline.parameters import Applied, ParameterServers
from dorylax.pipeline.parameters.compute import ParameterWorkers
from dorylax.pipeline.parameters.step_counts import uncounted
from dorylax.pipeline.prepare import Prepared, prepare
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.saved import Saved, remembered, stability
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.settings.errors import ConfigError


def prepared_for(
    config: PipelineConfig,
    parts: ModelParts,
    data: Dataset | AbstractData,
    optimizer: optax.GradientTransformation,
    loss: RowFunction,
) -> Prepared:
    """The plan and functions of a model, if the configuration fits its data and optimizer.

    Args:
        config: how to run.
        parts: the model.
        data: the data set, or its shapes.
        optimizer: any optax transformation that does not evaluate the loss itself.
        loss: `(output, labels) -> [V]`.

    Raises:
        ConfigError: the configuration does not fit; names the key.
        SplitError: the model cannot be split.
    """
    check_counts(config, data.graph.num_vertices)
    check_optimizer(optimizer, parts.params, config)
    spec = DataSpec.of(data, parts.keywords)
    price = config.expected_stale_price
    return prepare(parts, spec, config.passes, loss=loss, stale_price=price, workers=config.workers)


def check_counts(config: PipelineConfig, num_vertices: int) -> None:
    """Refuses more servers, or more intervals, than there are vertices.

    Raises:
        ConfigError: names the key.
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
    """Refuses to make several steps in an epoch with an optimizer that counts steps.

    Raises:
        ConfigError: names what counts.
    """
    if config.update == "per_interval":
        for count in uncounted(jax.eval_shape(optimizer.init, params)):
            raise ConfigError.of(
                "pipeline.update",
                f"= per_interval makes {config.servers * config.intervals} steps an epoch, which the optimizer would count "
                f"as epochs ({count}): choose pipeline.update=per_epoch",
            )


def prices_for(config: PipelineConfig) -> Cluster | None:
    """What runs are billed as; None where they cost nothing."""
    billed = config.clock == "virtual" or config.tensor.backend != "inline"
    return find_cluster(config.cluster) if billed else None


def layout_for(graph: CompressedGraph, config: PipelineConfig, seed: int) -> Layout:
    """Partitions a graph, or reads its partition, and lays the parts out in intervals.

    Args:
        graph: undivided.
        config: how many servers and intervals, and by which method.
        seed: of methods that draw.

    Raises:
        ConfigError: the graph cannot be divided like that, or a file does not hold its partition.
    """
    try:
        if config.partition is None:
            found = partition(graph, config.servers, method=config.partitioner, balance=config.balance, seed=seed)
        else:
            found = Partition.load(config.partition)
            found.check(graph)
            if found.num_parts != config.servers:
                raise ConfigError.of(
                    "pipeline.servers",
                    f"= {config.servers}, but the partition in {config.partition} is for {found.num_parts}",
                )
    except InputError as error:
        raise ConfigError.of(
            "pipeline.partition" if config.partition else "pipeline.partitioner", f"cannot be used: {error}"
        ) from error
    try:
        return lay_out(graph, found, config.intervals)
    except InputError as error:
        even = "" if config.partitioner == "range" else ", or pipeline.partitioner=range, whose parts are even"
        raise ConfigError.of("pipeline.intervals", f"= {config.intervals} do not fit: {error}{even}") from error


class Beginnings(NamedTuple):
    """What parameter servers begin with.

    Attributes:
        params: parameters.
        opt_state: the optimizer's state; None: a new one.
        state: the model's other state.
        saved: what the run had saved that goes on; None: it begins.
        epoch: the first that is trained.
        due: as of `Sequencer`; None: that epoch for all.
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
    driver: DrivesEpochs,
    start: Beginnings,
    *,
    context: HostContext,
    recorder: Recorder,
    on_applied: Callable[[Applied], None],
    here: Sequence[int] | None = None,
) -> ParameterServers:
    """The parameter servers of a run, or those of this process.

    Args:
        config: how to run.
        prepared: the plan and its functions.
        optimizer: an optax transformation.
        driver: what has no rows.
        start: what they begin with.
        context: what they share with hosts.
        recorder: told of what they do.
        on_applied: told of applied gradients.
        here: which of them; None: all.
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
