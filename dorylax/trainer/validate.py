"""Checks of a trainer's arguments before anything is computed or written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from dorylax.config.schema import SingleConfig, TrainConfig
from dorylax.errors import InputError
from dorylax.graph.array_names import MASKS
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData, mask_counts
from dorylax.graph.validate import GraphError
from dorylax.metrics.catalogue import ADDITIVE, check_defined
from dorylax.observers.base import Observer
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import ModelKindError, ModelParts
from dorylax.runs.metric import ACCURACIES, METRICS
from dorylax.settings.errors import ConfigError, shown
from dorylax.tasks.base import Task
from dorylax.trainer.model_parts import further_inputs, with_ids_if_needed
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.objective import Objective


def check_arguments(data: Any, optimizer: Any, observers: Sequence[Any]) -> None:
    """Raise TypeError, naming the argument, if data, optimizer or observers have the wrong type."""
    if not isinstance(data, Dataset | ShardedData):
        raise TypeError(f"data must be a dorylax.Dataset, got {type(data).__name__}; dorylax.load(name) gives one")
    if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
        raise TypeError(
            f"optimizer must be an optax transformation such as optax.adam(0.01), got {type(optimizer).__name__}"
        )
    for observer in observers:
        if not isinstance(observer, Observer):
            raise TypeError(f"an observer has methods started, epoch and finished, got {type(observer).__name__}")


def check_stops(data: Dataset | ShardedData, train: TrainConfig) -> None:
    """Raise ConfigError if a stopping rule needs validation, and no vertex is in the validation mask."""
    for name, value in (
        ("target_accuracy", train.target_accuracy),
        ("target", train.target),
        ("patience", train.patience),
    ):
        if value is not None and not mask_counts(data)[1]:
            raise ConfigError(f"train.{name} needs validation vertices, and {data.name} has an empty val_mask")


def check_trains(data: Dataset | ShardedData) -> None:
    """Raise GraphError if no example is in the training mask, as for data without labels."""
    if not mask_counts(data)[0]:
        raise GraphError(f"{data.name} has no labels: training needs some, predict does not")


def check_task(task: Task, single: SingleConfig, pipeline: PipelineConfig | None) -> None:
    """Raise InputError if a task whose examples are not vertices is combined with features for vertex tasks only."""
    name = type(task).__name__
    if pipeline is not None:
        raise InputError(
            f"{name} trains on one machine only: a pipeline predicts for each vertex. Leave pipeline.* and tensor.* out"
        )
    for key, value, usual in (
        ("order", single.order, "community"),
        ("gathered", single.gathered, "bfloat16"),
        ("memory", single.memory, "stream"),
    ):
        if value == usual:
            raise InputError(f"single.{key}={value} needs a task of vertices, and {name} is another one: leave it out")
    if single.memory_limit is not None:
        raise InputError(f"single.memory_limit needs a task of vertices, and {name} is another one: leave it out")


def check_target(objective: Objective, train: TrainConfig) -> None:
    """Raise ValueError if a target accuracy is given and runs are judged by another metric."""
    if train.target_accuracy is not None and objective.metric not in ACCURACIES:
        raise ValueError(
            f"train.target_accuracy = {train.target_accuracy} needs an accuracy, and loss={objective.name} is judged by its "
            f"{METRICS[objective.metric].title}: give train.target"
        )


def check_metric_defined(objective: Objective, data: Dataset | ShardedData, pipeline: PipelineConfig | None) -> None:
    """Raise ValueError if the metric is undefined on one of the masks, or cannot be computed on hosts' separate rows."""
    if not objective.measure.additive and pipeline is not None and pipeline.hosts != "inline":
        raise InputError(
            f"train.metric = {objective.metric} needs the outputs of all vertices at once, and with pipeline.hosts = "
            f"{pipeline.hosts} each host evaluates its own: choose one of {', '.join(ADDITIVE)}, or pipeline.hosts=inline"
        )
    if not isinstance(data, ShardedData):
        check_defined(objective.metric, data.labels, {name: getattr(data, name) for name in MASKS})


def check_keep_checkpoints(keep_checkpoints: int) -> None:
    """Raise ValueError unless it is an integer ≥ 1."""
    if isinstance(keep_checkpoints, bool) or not isinstance(keep_checkpoints, int):
        raise ValueError(f"keep_checkpoints must be a whole number ≥ 1, got {shown(keep_checkpoints)}")
    if keep_checkpoints < 1:
        raise ValueError(f"keep_checkpoints must be ≥ 1, got {keep_checkpoints}")


def check_run_directory(train: TrainConfig, run_directory: str | os.PathLike[str] | None, *, resume: bool) -> None:
    """Raise ValueError if an option needs a run directory, and there is none."""
    if run_directory is not None:
        return
    if resume:
        raise ValueError("resume=True needs run_directory, the directory of the run to continue")
    if train.checkpoint_every:
        raise ConfigError(
            f"train.checkpoint_every = {train.checkpoint_every} needs a run directory, where checkpoints go"
        )
    if train.checkpoints is not None:
        raise ConfigError(f"train.checkpoints = {train.checkpoints} needs a run directory, whose checkpoints go there")


def check_pipeline(pipeline: Any, data: Any) -> None:
    """Raise TypeError unless it is a pipeline's configuration or None, and ConfigError if it cannot train on shards."""
    if isinstance(data, ShardedData) and isinstance(pipeline, PipelineConfig | None):
        hosts = None if pipeline is None else pipeline.hosts
        if hosts in (None, "inline"):
            raise ConfigError.of(
                "pipeline.hosts",
                f"must be processes to train on shards in {data.folder}, got {shown(hosts)}: this process holds no graph",
            )
    if not isinstance(pipeline, PipelineConfig | None):
        raise TypeError(f"pipeline must be a dorylax.pipeline.config.PipelineConfig, got {type(pipeline).__name__}")


class Checked(NamedTuple):
    """Properties of a model found by one abstract forward pass.

    Attributes:
        edge_ids: Whether it reads edge ids; without them, a graph needs up to 12 fewer bytes per edge.
        row_outputs: Whether all its outputs have a row per vertex.
    """

    edge_ids: bool
    row_outputs: bool


def check_model(functions: StepFunctions, parts: ModelParts, data: Dataset | AbstractData) -> Checked:
    """Trace one forward pass on abstract arrays.

    Raises:
        ValueError: The output or the loss has the wrong shape.
        TypeError: The output or the loss is not floating-point, or the model changes its structure while it runs.
    """
    model = (parts.params, parts.streams, parts.state)
    named = further_inputs(data, parts.keywords, parts.name)
    reads: list[bool] = []

    def shapes(graph: CompressedGraph) -> tuple[Any, Any]:
        reads.append(graph.edge_ids_fit)
        return functions.output_shapes(*_shapes(*model, graph, data.features, named))

    output, state = with_ids_if_needed(data, shapes)
    functions.objective.check(parts.name, output, data)
    same_structure: bool = jax.tree.structure(state) == jax.tree.structure(parts.state)  # type: ignore[operator]
    if not same_structure:
        raise ModelKindError(
            f"{parts.name} adds or removes variables while it runs: make all of them in __init__ "
            "(values sown as nnx.Intermediate are fine, and dropped)"
        )
    rows = [leaf.shape[:1] == (data.graph.num_vertices,) for leaf in jax.tree.leaves(output)]
    return Checked(reads[-1] or any(name in data.edge_inputs for name in named), all(rows))


def _shapes(*tree: Any) -> Any:
    return jax.eval_shape(lambda *leaves: leaves, *tree)
