"""The memory of a configured run, settings that make it fit, and the check before its data and weights are made."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optax

from dorylax.config.resolve import RunConfig
from dorylax.config.tasks import SPECS
from dorylax.cost import find_cluster
from dorylax.errors import RunError
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.datasets.communities import NAME as GENERATED
from dorylax.graph.datasets.communities import SIZES
from dorylax.graph.sharded_data import ShardedData
from dorylax.machine import cores, resident_bytes
from dorylax.memory.estimate import Estimate, Remedy, gibibytes
from dorylax.memory.hosts import Program
from dorylax.memory.phases import Process, phases
from dorylax.memory.sources import shape_of
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.placement import Estimate as Placed
from dorylax.pipeline.placement import Rows
from dorylax.pipeline.prepare import prepare
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.setup import prepared_for
from dorylax.pipeline.stages import StageSizes
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tracing.spec import DataSpec
from dorylax.settings.errors import ConfigError
from dorylax.streaming.residency import NotStreamedError
from dorylax.trainer.footprint.of_hosts import estimate_hosts, parameter_bytes
from dorylax.trainer.footprint.of_streamed import StreamedEstimate, estimate_streamed
from dorylax.trainer.footprint.of_trainer import clearly_fits, compiled_on_shapes, tree_bytes
from dorylax.trainer.from_config import abstract_model, build_optimizer, shards_for
from dorylax.trainer.step.functions import StepFunctions, step_functions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.step.objective import Objective
from dorylax.trainer.validate import check_model
from dorylax.trainer.vertex_order import effective_order

_FEWEST_HIDDEN = 8
_ADDRESSABLE = 2**47  # bytes, of a process on 64-bit processors
# Time limit for remedies that need a compiled model, in seconds.
_TRIAL_SECONDS = 20.0
_PARTIAL = ("single.order", "data.row_normalise")
_HOST = ("load", "order", "cut")  # phases that no model changes


def estimate(config: RunConfig, like: Estimate | None = None) -> Estimate | None:
    """Estimate the memory of a run without its data or weights.

    Args:
        config: A run without a pipeline, or with a pipeline whose servers are hosts.
        like: An estimate in this process whose `process` also holds here; None: it is measured.

    Returns:
        The estimate, or None if there is no such data set.

    Raises:
        ConfigError: The task's examples are not vertices.
        ValueError, OSError: The data set's file or the model is not usable.
    """
    if not _of_vertices(config):
        raise ConfigError.of("task.name", f"= {config.task.name}: what it takes is known of tasks of vertices only")
    shape, shards = _shape(config)
    return None if shape is None else _estimate(config, shape, like, shards)


def _of_vertices(config: RunConfig) -> bool:
    return config.task.name is None or SPECS[config.task.name].of_vertices


def _shape(config: RunConfig) -> tuple[DataShape | None, ShardedData | None]:
    """Return the shape of a run's data set, and existing shards."""
    shards = shards_for(config)
    return (shape_of(config.data) if shards is None else shards.summary.shape), shards


def remedies(config: RunConfig, found: Estimate) -> list[Remedy]:
    """Find settings that would reduce a run's memory: for each key, the smallest change that makes the run fit.

    Keys in `_PARTIAL` are listed also if they save memory without making the run fit. Settings that need another compilation
    are skipped once it would exceed `_TRIAL_SECONDS`, judging by the time that `found` took.
    """
    begin = time.perf_counter()
    better: list[Remedy] = []
    settled: set[str] = set()
    for change, like in _changes(config, found):
        ((key, value),) = change.items()
        late = like.compiled is None and time.perf_counter() - begin + found.seconds > _TRIAL_SECONDS
        if key in settled or late:
            continue
        other = estimate(config.resolve(config.to_dict(), change, code=config.code), like)
        if other is not None and other.peak.total < found.peak.total and (other.fits or key in _PARTIAL):
            settled.add(key)
            shown = str(value).lower() if isinstance(value, bool) else value
            better.append(Remedy(f"{key}={shown}", other.peak.total))
    return better


def streamed(config: RunConfig, found: Estimate) -> StreamedEstimate:
    """Estimate the memory of a run that does not fit, if it streams its data.

    Args:
        config: A run without a pipeline.
        found: Estimate of the run in memory.

    Raises:
        SplitError, NotStreamedError: The run cannot be streamed; the message gives the reason.
    """
    if config.pipeline is not None:
        raise NotStreamedError("servers hold their rows in memory: leave out pipeline.*")
    if config.single.only_in_memory:
        raise NotStreamedError(config.single.only_in_memory)
    if found.limit is None:
        raise NotStreamedError("this system does not say how much memory there is: give single.memory_limit")
    functions, parts, _ = _model(config, found.shape)
    scratch = None if config.single.scratch is None else Path(config.single.scratch)
    return estimate_streamed(found, parts, functions.objective, found.limit, scratch)


def functions_remark(config: RunConfig) -> str | None:
    """A line if functions would be slower or dearer than the servers alone, by the time model; None otherwise.

    Raises:
        ValueError, OSError: As for `estimate`.
    """
    pipeline = config.pipeline
    shape, _ = _shape(config)
    if pipeline is None or shape is None or not (_of_vertices(config) and pipeline.has_functions):
        return None
    data = abstract_data(shape)
    rows_of_loss = Objective.of(None, data).rows
    plan = prepared_for(pipeline, _parts(config, data), data, build_optimizer(config), rows_of_loss).plan
    each = pipeline.servers * pipeline.intervals
    rows = Rows(pipeline.intervals, -(-shape.num_vertices // pipeline.servers), -(-shape.num_edges // pipeline.servers))
    sizes = StageSizes(-(-shape.num_vertices // each), min(pipeline.edge_chunk, -(-shape.num_edges // each)))
    cluster = find_cluster(pipeline.cluster)
    resources = Resources.of(pipeline, cluster if pipeline.clock == "virtual" else None, cores())
    found = Placed(plan, rows, sizes=sizes, config=pipeline, cluster=cluster, resources=resources)
    return found.remark(pipeline.tensor.placement)


def check_config(config: RunConfig) -> None:
    """Refuse a run that fits into memory neither whole nor streamed, before its data and weights are made.

    The check is cheap for a run that clearly fits.

    Raises:
        RunError: The run needs more memory than there is. The message names the phase, settings that would make it
            fit, and the reason against streaming.
        ValueError, OSError: As for `estimate`.
    """
    limit = config.single.limit
    streams = config.single.memory == "stream"
    if config.single.memory == "ignore" or limit is None:
        return
    shape, shards = _shape(config)
    if shape is None:
        return
    inline = config.pipeline is not None and config.pipeline.hosts == "inline"
    if inline or not _of_vertices(config):  # for these runs, formulas cover only the parameters
        _parts(config, abstract_data(shape))
        return
    _, parts, shape = _model(config, shape)
    if not streams and config.pipeline is None and clearly_fits(shape, parts, limit.bytes):
        return
    found = _estimate(config, shape, shards=shards)
    if found.fits and not streams:
        return
    try:
        streamed(config, found)
    except (SplitError, NotStreamedError) as error:
        if found.fits:
            raise RunError(f"single.memory=stream: the run cannot be streamed from disk: {error}") from None
        reason = "" if config.pipeline is not None else f". It cannot be streamed from disk either: {error}"
        raise RunError(found.refusal(remedies(config, found)) + reason) from None


def _estimate(
    config: RunConfig, shape: DataShape, like: Estimate | None = None, shards: ShardedData | None = None
) -> Estimate:
    begin = time.perf_counter()
    functions, parts, shape = _model(config, shape)
    data = abstract_data(shape)
    if config.pipeline is not None:
        optimizer = build_optimizer(config)
        return estimate_hosts(
            config.pipeline,
            _program(config.pipeline, parts, data, optimizer),
            parameter_bytes(parts, optimizer),
            shape,
            shards,
            row_normalise=config.data.row_normalise,
        )
    gradient = functools.cache(lambda: _gradient(functions, parts, data, config))
    community = effective_order(config.single.order, data, lambda: gradient().forward.by_rows) == "community"
    libraries = resident_bytes()
    compiled, code = None if like is None else like.compiled, 0
    if compiled is None:
        compiled, code, _ = compiled_on_shapes(functions, gradient(), parts, shape, community=community)
    seconds = 0.0 if like is not None and like.compiled is not None else time.perf_counter() - begin
    process = Process(libraries, code) if like is None else like.process
    parted = phases(shape, process, community=community, row_normalise=config.data.row_normalise, compiled=compiled)
    return Estimate(shape, parted, config.single.limit, process, compiled, seconds)


def _model(config: RunConfig, shape: DataShape) -> tuple[StepFunctions, ModelParts, DataShape]:
    """Return step functions, model, and the shape with edge ids only if the model reads them."""
    data = abstract_data(shape)
    parts = _parts(config, data)
    functions = step_functions(
        parts.structure, build_optimizer(config), Objective.of(config.train.loss, data, config.train.metric)
    )
    reads = check_model(functions, parts, data).edge_ids
    return functions, parts, dataclasses.replace(shape, edge_ids=reads)


def _parts(config: RunConfig, data: AbstractData) -> ModelParts:
    """Return the abstract model; raises a RunError if its parameters alone, on which XLA may overflow, do not fit."""
    parts = take_apart(abstract_model(config, data))
    needed, limit = 3 * tree_bytes(parts.params), None if config.single.memory == "ignore" else config.single.limit
    most, owner = (_ADDRESSABLE, "a process") if limit is None else (limit.bytes, limit.owner)
    if needed > most:
        raise RunError(
            f"the run does not fit: the parameters of {parts.name} need {gibibytes(needed)} (three copies), {owner} has "
            f"{gibibytes(most)}: make the model narrower (model.hidden_features)"
        )
    return parts


def _program(
    config: PipelineConfig, parts: ModelParts, data: AbstractData, optimizer: optax.GradientTransformation
) -> Program:
    """Return the plans of the hosts."""
    plan = prepared_for(config, parts, data, optimizer, Objective.of(None, data).rows).plan
    return Program(plan, prepare(parts, plan.program.traced.spec, config.passes, loss=None, workers=False).plan)


def _gradient(functions: StepFunctions, parts: ModelParts, data: AbstractData, config: RunConfig) -> Gradient:
    """Return the gradient that the trainer chooses."""
    if not config.single.optimize:
        return functions.plain
    try:
        spec = DataSpec.of(data, parts.keywords)
        return functions.optimised(parts, spec, gathered=config.single.gathered)[0]
    except SplitError:
        return functions.plain


def _changes(config: RunConfig, found: Estimate) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Yield settings to try, for each key the smallest change first, each with an estimate whose parts still hold."""
    measured = dataclasses.replace(found, compiled=None)
    if config.pipeline is None and config.single.order != "given":
        yield {"single.order": "given"}, found  # ids of vertices and edges are arguments, so XLA's allocation stays
    cut = shards_for(config) is not None  # existing shards fix the data
    if config.data.row_normalise and not cut:
        yield {"data.row_normalise": False}, found
    hidden = config.model.hidden_features
    there = math.inf if found.limit is None else float(found.limit.bytes)
    if hidden is not None and all(phase.total <= there for phase in found.phases if phase.name in _HOST):
        while hidden > _FEWEST_HIDDEN:
            hidden = max(hidden // 2, _FEWEST_HIDDEN)
            yield {"model.hidden_features": hidden}, measured
    if config.data.name == GENERATED and not cut:
        sizes = sorted(SIZES.items(), key=lambda item: -item[1].num_edges)
        for name, size in sizes:
            if size.num_edges < found.shape.num_edges:
                yield {"data.size": name}, measured
