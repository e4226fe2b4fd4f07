"""Preparation of a pipeline: configuration checks, the model's plan and compiled functions, and the layout of the graph.

Plans and functions are cached for runs that differ only in their seed.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, final

import jax
import optax

from dorylax.cost import Cluster, find_cluster
from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout, Partition, lay_out, partition
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.driver import DriverFunctions
from dorylax.pipeline.parameters.update import uncounted
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import StageFunction, StageSizes, compiled
from dorylax.program.artefact.export import StageSet, export_stages
from dorylax.program.model.base import ModelParts, Tree, signature
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.program.passes import optimise
from dorylax.program.program import trace
from dorylax.program.tracing.spec import DataSpec
from dorylax.settings.errors import ConfigError


@final
class Prepared:
    """A plan with its functions, for data of one kind.

    Args:
        plan: The plan.

    Attributes:
        driver: Functions of the driver.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.driver = plan, DriverFunctions(plan)
        self._functions: dict[tuple[int, int], StageFunction] = {}

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> dict[int, StageFunction]:
        """Return the functions of stages and driver tasks by task index, compiled for these sizes.

        Args:
            sizes: Numbers of rows per call.
            of_workers: Whether to include the stages of workers; False if workers are remote and compile their stages.
        """
        found: dict[int, StageFunction] = {}
        for step in self.plan.steps:
            if step.kind in ("stage", "driver") and (of_workers or not step.on_worker):
                key = (step.index, 0 if step.space is None else sizes.of(step))
                if key not in self._functions:
                    self._functions[key] = compiled(self.plan, step, key[1])
                found[step.index] = self._functions[key]
        return found

    @functools.cached_property
    def artefacts(self) -> StageSet:
        """Exported stages for workers in other processes."""
        return export_stages(self.plan.program)


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """A model to train, and how.

    Attributes:
        parts: The model.
        loss: Loss per vertex, `(output, labels) -> [V]`.
        optimizer: An optax transformation.
        config: Settings of the pipeline.
        prices: Cluster whose prices apply to runs; None for free runs.
        seed: Seed of dropout, of the partition and of virtual latencies.
    """

    parts: ModelParts
    loss: RowFunction
    optimizer: optax.GradientTransformation
    config: PipelineConfig
    prices: Cluster | None
    seed: int


def prepare(
    parts: ModelParts,
    spec: DataSpec,
    passes: tuple[str, ...],
    *,
    loss: RowFunction | None = cross_entropy,
    stale_price: float = 0.0,
    workers: bool = True,
) -> Prepared:
    """Trace, split and plan a model. Results are cached by model and kind of data.

    Args:
        parts: The model.
        spec: Specification of the data.
        passes: Passes to apply.
        loss: Loss per vertex, `(output, labels) -> [V]`; None for the exact forward pass of evaluations.
        stale_price: Price of a stale byte, see `passes.reorder`.
        workers: Whether tensor workers run the stages intended for them, see `Plan.of`.

    Raises:
        SplitError: The model cannot be split.
    """
    key = (
        parts.structure,
        spec,
        passes,
        loss,
        stale_price,
        workers,
        signature((parts.params, parts.streams, parts.state)),
    )
    try:
        found = _prepared(key)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        found = []
    if not found:
        traced = trace(parts, spec, loss=loss, metrics=None)
        found.append(Prepared(Plan.of(optimise(traced, passes=passes, stale_price=stale_price), workers=workers)))
    return found[0]


@functools.lru_cache(maxsize=8)
def _prepared(key: tuple[Any, ...]) -> list[Prepared]:  # noqa: ARG001
    """Return the model prepared for a key, or an empty list, to which the caller adds it."""
    return []


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
