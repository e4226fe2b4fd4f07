"""Builds data, model and optimizer from a resolved configuration, for `Trainer.from_config` and the commands."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import optax
from flax import nnx

from dorylax.config.optimizers import OptimizerConfig
from dorylax.config.resolve import RunConfig
from dorylax.config.schema import KEYS, DataConfig
from dorylax.graph import datasets
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.labels import Labels
from dorylax.graph.sharded_data import ShardedData
from dorylax.graph.validate import GraphError
from dorylax.layers import registry
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.settings.section import extra
from dorylax.store.run_directory import UserCode, differences, listed
from dorylax.tasks import make_task
from dorylax.trainer.optimizer import make_optimizer
from dorylax.user_code.references import executed_sha256, place_of

# An order of vertices that changes numbers is compared separately, as part of the checkpoints.
_FREE = frozenset(key for key, field in KEYS.items() if extra(field, "continuable"))
# Settings for placing and scheduling tasks; in virtual time they determine the cluster's speed. Two affect how sums are
# formed.
_FREE_ON_THE_REAL_CLOCK = {"pipeline.hosts", "pipeline.num_hosts", "pipeline.graph_threads"} | (
    {*map(TensorConfig.key, TensorConfig.options()), *map(RayConfig.key, RayConfig.options())}
    - {"tensor.backend", "tensor.streaming"}
)


def prepare_data(config: DataConfig, normalised: Path | None = None, *, known: Labels | None = None) -> Dataset:
    """Load the data set that the `data` section names, and row-normalise its features if set.

    Args:
        config: The section.
        normalised: File for the normalised features; None: they are held in memory.
        known: As for `dorylax.graph.datasets.load`.

    Raises:
        ValueError, OSError: As for `dorylax.graph.datasets.load`.
    """
    options: dict[str, Any] = {name: getattr(config, name) for name in ("split", "split_seed", "verify")}
    if config.size is not None:
        options["size"] = config.size
    data = datasets.load(config.name, known=known, **options)
    return data.row_normalised(normalised) if config.row_normalise else data


def shards_for(config: RunConfig) -> ShardedData | None:
    """Return the shards of a run's data if its hosts read them; the data set is then not loaded.

    Raises:
        ConfigError: The shards hold other data than the `data` section names.
        GraphError, OSError: As for `ShardedData.find`.
    """
    pipeline = config.pipeline
    if pipeline is None or pipeline.hosts == "inline" or pipeline.partition is None:
        return None
    try:
        shards = ShardedData.find(pipeline.partition, verify=config.data.verify)
    except ValueError as error:
        if isinstance(error, GraphError):
            raise
        raise ConfigError.of("pipeline.partition", str(error)) from None
    if shards is None:
        return None
    if shards.summary.settings is not None and (
        changed := differences(shards.summary.settings, data_settings(config.data))
    ):
        raise ConfigError.of(
            "pipeline.partition",
            f"= {pipeline.partition} has the shards of other data ({listed(changed)}): give their settings of data, or make "
            "the partition again (dorylax partition)",
        )
    return shards


def data_settings(config: DataConfig) -> dict[str, Any]:
    """Return the settings of the `data` section that determine the loaded data, as JSON values."""
    return {key: value for key, value in config.to_dict().items() if key != "verify"}


def build_model(config: RunConfig, data: Dataset | AbstractData) -> nnx.Module:
    """Build the model that the `model` section describes for this data set, with parameters from `train.seed`.

    Raises:
        ConfigError: The reference does not give a model, or the options do not exist.
        InputError: The model is named by an untrusted folder.
    """
    named = config.model.model_dump(include=set(config.model.options()) - {"name"}, exclude_none=True)
    options = named | config.model.own
    width = make_task(config.task, config.data.split_seed).outputs(data)
    seed = config.train.seed
    rngs = nnx.Rngs(params=seed, dropout=seed)
    model: nnx.Module = registry.build(config.located(config.model.name), data.num_features, width, options, rngs)
    return model


def abstract_model(config: RunConfig, data: Dataset | AbstractData) -> nnx.Module:
    """Run `build_model` on abstract arrays, which need 0 bytes, or on real ones for a class that needs values."""
    try:
        model: nnx.Module = nnx.eval_shape(lambda: build_model(config, data))
    except Exception:  # tracers, arrays from outside the trace, or an error of the class, which occurs again
        return build_model(config, data)
    return model


def build_optimizer(config: RunConfig) -> optax.GradientTransformation:
    """Return the optimizer of the `optimizer` section: one object for equal sections, so that compiled steps are shared.

    Raises:
        InputError: The optimizer is named by an untrusted folder.
    """
    return _optimizer(config.optimizer.model_copy(update={"name": config.located(config.optimizer.name)}))


@functools.lru_cache(maxsize=64)
def _optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    return make_optimizer(config)


def user_code(config: RunConfig) -> UserCode:
    """Return the files of user code from which model and optimizer were built."""
    files = {place_of(name): place_of(config.located(name)) for name in config.references}
    return {
        place: {"file": str(Path(file).absolute()), "sha256": sha256}
        for place, file in files.items()
        if (sha256 := executed_sha256(file)) is not None
    }


def settings(config: RunConfig) -> dict[str, Any]:
    """Return the dotted settings that a continued run must share; see `free_settings`."""
    free = free_settings(config.pipeline)
    return {key: value for key, value in config.dotted().items() if key not in free}


def free_settings(pipeline: PipelineConfig | None) -> frozenset[str]:
    """Return the dotted settings that a continued run may change."""
    return _FREE | _FREE_ON_THE_REAL_CLOCK if pipeline is not None and pipeline.clock == "real" else _FREE
