"""The memory of a configured run, settings that make it fit, and the check before its data and weights are made."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.config.resolve import RunConfig
from dorylax.config.tasks import SPECS
from dorylax.errors import RunError
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.datasets.communities import NAME as GENERATED
from dorylax.graph.datasets.communities import SIZES
from dorylax.graph.sharded_data import ShardedData
from dorylax.machine import resident_bytes
from dorylax.memory.estimate import Compiled, Estimate, Process, Remedy, gibibytes
from dorylax.memory.hosts import estimate_hosts
from dorylax.memory.phases import held, phases
from dorylax.memory.sources import shape_of
from dorylax.pipeline.prepare import prepare, prepared_for
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tracing.spec import DataSpec
from dorylax.settings.errors import ConfigError
from dorylax.streaming.layout import INDEX
from dorylax.streaming.residency import even_units
from dorylax.trainer.footprint.of_trainer import clearly_fits, compiled_on_shapes, parameter_bytes, tree_bytes
from dorylax.trainer.from_config import abstract_model, build_optimizer, shards_for
from dorylax.trainer.step.functions import StepFunctions, step_functions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.step.objective import Objective
from dorylax.trainer.streamed import Layouts, Plan, Programs, free_bytes, lay_out_both, plan_within, programs
from dorylax.trainer.validate import check_model
from dorylax.trainer.vertex_order import effective_order

_FEWEST_HIDDEN = 8
_ADDRESSABLE = 2**47  # bytes, of a process on 64-bit processors
# Time limit for remedies that need a compiled model, in seconds.
_TRIAL_SECONDS = 20.0
_PARTIAL = ("single.order", "data.row_normalise")
_HOST = ("load", "order", "cut")  # phases that no model changes


class StreamedEstimate(NamedTuple):
    """The layouts of a streamed run's programs, and the bytes that its process holds in addition."""

    layouts: Layouts
    base: int

    @property
    def memory(self) -> int:
        """Peak bytes in memory."""
        training, evaluation = self.layouts
        return self.base + max(training.bytes, training.lasting_bytes + evaluation.bytes)

    @property
    def disk(self) -> int:
        """Bytes of files during the run."""
        return sum(layout.scratch_bytes for layout in self.layouts)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON values, in bytes; "edges" are those traversed in an epoch."""
        training = self.layouts.training
        read, written = training.traffic
        edges = training.index_reads * training.num_edges
        return {
            "memory": self.memory,
            "disk": self.disk,
            "epoch": {"read": read, "written": written, "edges": edges},
            "once": {"read": training.traffic_of_once[0], "written": training.traffic_of_once[1]},
        }

    def __str__(self) -> str:
        training = self.layouts.training
        read, written = training.traffic
        times = training.index_reads
        return (
            f"streams its data from disk: {gibibytes(self.memory)} in memory, {gibibytes(self.disk)} of files; an epoch "
            f"reads {gibibytes(read)}, writes {gibibytes(written)} and goes through the edges {times} "
            f"time{'' if times == 1 else 's'}"
        )


def estimate(config: RunConfig, like: Estimate | None = None) -> Estimate | None:
    """Estimate the memory of a run without its data or weights.

    Args:
        config: A run without a pipeline, or with a pipeline whose servers are hosts.
        like: An estimate in this process whose `process`, and `compiled` if any, also hold here; None: they are measured.

    Returns:
        The estimate, or None if there is no such data set.

    Raises:
        ConfigError: The task's examples are not vertices.
        RunError: The model's parameters alone do not fit.
        ValueError, OSError: The data set's file or the model is not usable.
    """
    if not of_vertices(config):
        raise ConfigError.of("task.name", f"= {config.task.name}: what it takes is known of tasks of vertices only")
    shape, shards = data_shape(config)
    if shape is None:
        return None
    begin = time.perf_counter()
    functions, parts, shape = _model(config, shape)
    data = abstract_data(shape)
    normalises = config.data.row_normalise
    if (pipeline := config.pipeline) is not None:
        optimizer = build_optimizer(config)
        plan = prepared_for(pipeline, parts, data, optimizer, Objective.of(None, data).rows).plan
        evaluation = prepare(parts, plan.program.traced.spec, pipeline.passes, loss=None, workers=False).plan
        parameters = parameter_bytes(parts, optimizer)
        return estimate_hosts(pipeline, (plan, evaluation), parameters, shape, shards, row_normalise=normalises)
    gradient = functools.cache(lambda: _gradient(functions, parts, data, config))
    community = effective_order(config.single.order, data, lambda: gradient().forward.by_rows) == "community"
    compiled: Compiled | None
    if like is not None and like.compiled is not None:
        process, compiled, seconds = like.process, like.compiled, 0.0
    else:
        libraries = resident_bytes()
        compiled, code, _ = compiled_on_shapes(functions, gradient(), parts, shape, community=community)
        process = Process(libraries, code) if like is None else like.process
        seconds = time.perf_counter() - begin
    parted = phases(shape, process, community=community, row_normalise=normalises, compiled=compiled)
    return Estimate(shape, parted, config.single.limit, process, compiled, seconds)


def remedies(config: RunConfig, found: Estimate) -> tuple[Remedy, ...]:
    """Find settings that would reduce a run's memory: for each key, the smallest change that makes the run fit.

    Keys in `_PARTIAL` are listed also if they save memory without making the run fit. Settings that need another compilation
    are skipped once it would exceed `_TRIAL_SECONDS`, judging by the time that `found` took.
    """
    begin = time.perf_counter()
    better: dict[str, Remedy] = {}
    for key, value, like in _changes(config, found):
        late = like.compiled is None and time.perf_counter() - begin + found.seconds > _TRIAL_SECONDS
        if key in better or late:
            continue
        other = estimate(config.resolve(config.to_dict(), {key: value}, code=config.code), like)
        if other is not None and other.peak.total < found.peak.total and (other.fits or key in _PARTIAL):
            shown = str(value).lower() if isinstance(value, bool) else value
            better[key] = Remedy(f"{key}={shown}", other.peak.total)
    return tuple(better.values())


def streamed(config: RunConfig, found: Estimate) -> StreamedEstimate:
    """Estimate the memory, disk space and traffic of a run that does not fit, if it streams its data from disk.

    Args:
        config: The run.
        found: Its estimate in memory.

    Raises:
        SplitError: The run cannot be streamed, does not fit even then, or its data cannot be loaded; the message gives the
            reason.
    """
    if config.pipeline is not None:
        raise SplitError("servers hold their rows in memory: leave out pipeline.*")
    if config.single.only_in_memory:
        raise SplitError(config.single.only_in_memory)
    limit = found.limit
    if limit is None:
        raise SplitError("this system does not say how much memory there is: give single.memory_limit")
    functions, parts, _ = _model(config, found.shape)
    scratch = None if config.single.scratch is None else Path(config.single.scratch)
    shape, load = found.shape, found.phases[0]
    V, E, train = shape.num_vertices, shape.num_edges, shape.num_labelled
    mapped = [name for name in ("features", "graph") if shape.storage(name) == "mapped"]
    # The system evicts pages of mapped files if memory is scarce.
    stays = load.total - sum(load.parts.get(name, 0) for name in mapped)
    if load.name == "load" and stays > limit.bytes:
        raise SplitError(
            f"loading the data takes {gibibytes(stays)}: give an archive that can be used where it lies "
            "(features as float32, indices as int32, every edge with its reverse, written by dorylax)"
        )
    spec = dataclasses.replace(DataSpec.of(abstract_data(shape), parts.keywords), edge_ids_fit=shape.edge_ids_fit)
    # Expected `edges_from_labelled`; all edges, the upper bound, if the number of training vertices is unknown.
    labelled = None if not shape.symmetric or train == V else E if train is None else round(E * train / V)

    def base_of(pair: Programs) -> int:
        reads_order = any(one.reads_edges("ids", "places", "rows") for one in pair)
        return found.process.libraries + held(shape, ordered=False) + (4 * E if reads_order else 0)

    def plan(hoists: bool, keeps_apart: bool) -> Plan:
        pair = programs(parts, spec, functions.objective, hoists=hoists)
        units = even_units(V, E, *pair)
        layouts = lay_out_both(
            pair,
            units,
            limit.bytes,
            base_of(pair),
            symmetric=shape.symmetric,
            mapped=frozenset(INDEX if name == "graph" else name for name in mapped),
            labelled_edges=labelled if keeps_apart else None,
        )
        return Plan(pair, units, layouts)

    # Without a known folder, the disk is assumed to be large enough.
    room = sys.maxsize if scratch is None else free_bytes(scratch)
    planned = plan_within(room, plan, scratch or Path())
    return StreamedEstimate(planned.layouts, base_of(planned.programs))


def check_config(config: RunConfig) -> None:
    """Refuse a run that fits into memory neither whole nor streamed, before its data and weights are made.

    The check is cheap for a run that clearly fits.

    Raises:
        RunError: The run needs more memory than there is. The message names the phase, settings that would make it
            fit, and the reason against streaming.
        ValueError, OSError: As for `estimate`.
    """
    single, pipeline = config.single, config.pipeline
    if single.memory == "ignore" or single.limit is None:
        return
    shape, _ = data_shape(config)
    if shape is None:
        return
    if (pipeline is not None and pipeline.hosts == "inline") or not of_vertices(config):
        abstract_parts(config, abstract_data(shape))  # for these runs, formulas cover only the parameters
        return
    if pipeline is None and single.memory != "stream":
        _, parts, read = _model(config, shape)
        if clearly_fits(read, parts, single.limit.bytes):
            return
    found = estimate(config)
    if found is None or (found.fits and single.memory != "stream"):
        return
    try:
        streamed(config, found)
    except SplitError as error:
        if found.fits:
            raise RunError(f"single.memory=stream: the run cannot be streamed from disk: {error}") from None
        refusal = dataclasses.replace(found, remedies=remedies(config, found)).refusal()
        reason = "" if pipeline is not None else f". It cannot be streamed from disk either: {error}"
        raise RunError(refusal + reason) from None


def of_vertices(config: RunConfig) -> bool:
    """Whether the task's examples are vertices."""
    return config.task.name is None or SPECS[config.task.name].of_vertices


def data_shape(config: RunConfig) -> tuple[DataShape | None, ShardedData | None]:
    """Return the shape of a run's data set, and existing shards."""
    shards = shards_for(config)
    return (shape_of(config.data) if shards is None else shards.summary.shape), shards


def abstract_parts(config: RunConfig, data: AbstractData) -> ModelParts:
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


def _model(config: RunConfig, shape: DataShape) -> tuple[StepFunctions, ModelParts, DataShape]:
    """Return step functions, model, and the shape with edge ids only if the model reads them."""
    data = abstract_data(shape)
    parts = abstract_parts(config, data)
    objective = Objective.of(config.train.loss, data, config.train.metric)
    functions = step_functions(parts.structure, build_optimizer(config), objective)
    return functions, parts, dataclasses.replace(shape, edge_ids=check_model(functions, parts, data).edge_ids)


def _gradient(functions: StepFunctions, parts: ModelParts, data: AbstractData, config: RunConfig) -> Gradient:
    """Return the gradient that the trainer chooses."""
    if not config.single.optimize:
        return functions.plain
    try:
        spec = DataSpec.of(data, parts.keywords)
        return functions.optimised(parts, spec, gathered=config.single.gathered)[0]
    except SplitError:
        return functions.plain


def _changes(config: RunConfig, found: Estimate) -> Iterator[tuple[str, Any, Estimate]]:
    """Yield settings to try, for each key the smallest change first, each with an estimate whose parts still hold."""
    measured = dataclasses.replace(found, compiled=None)
    if config.pipeline is None and config.single.order != "given":
        yield "single.order", "given", found  # ids of vertices and edges are arguments, so XLA's allocation stays
    cut = shards_for(config) is not None  # existing shards fix the data
    if config.data.row_normalise and not cut:
        yield "data.row_normalise", False, found
    hidden = config.model.hidden_features
    there = math.inf if found.limit is None else float(found.limit.bytes)
    if hidden is not None and all(phase.total <= there for phase in found.phases if phase.name in _HOST):
        while hidden > _FEWEST_HIDDEN:
            hidden = max(hidden // 2, _FEWEST_HIDDEN)
            yield "model.hidden_features", hidden, measured
    if config.data.name == GENERATED and not cut:
        for name, size in sorted(SIZES.items(), key=lambda item: -item[1].num_edges):
            if size.num_edges < found.shape.num_edges:
                yield "data.size", name, measured
