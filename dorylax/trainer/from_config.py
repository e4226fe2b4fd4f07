"""Builds data, model and optimizer from a resolved configuration, for `Trainer.from_config` and the commands."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import optax
from flax import nnx

from dorylax.config.optimizers import OPTIMIZERS, OptimizerConfig
from dorylax.config.resolve import RunConfig
from dorylax.config.schema import KEYS, DataConfig
from dorylax.errors import InputError
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
from dorylax.user_code.references import executed_sha256, is_reference, load_reference, place_of

# An order of vertices that changes numbers is compared separately, as part of the checkpoints.
_FREE = frozenset(key for key, field in KEYS.items() if extra(field, "continuable"))
# Settings for placing and scheduling tasks; in virtual time they determine the cluster's speed. Two affect how sums are
# formed.
_FREE_ON_THE_REAL_CLOCK = {"pipeline.hosts", "pipeline.num_hosts", "pipeline.graph_threads"} | (
    {*map(TensorConfig.key, TensorConfig.options()), *map(RayConfig.key, RayConfig.options())}
    - {"tensor.backend", "tensor.streaming"}
)
_LEFT = 0.01  # of the step size, by an exponential schedule
_TUNABLE = sorted({name for spec in OPTIMIZERS.values() for name in spec.options})


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
    return make_optimizer(config.optimizer.model_copy(update={"name": config.located(config.optimizer.name)}))


@functools.lru_cache(maxsize=64)
def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Return the optax transformation of a resolved configuration.

    Coupled weight decay adds λ·w to the gradient before anything else sees it: the gradient of λ/2·‖w‖², as in the
    published GCN and GAT; also for user-defined optimizers. Decoupled decay (adamw: Loshchilov & Hutter,
    arXiv 1711.05101; lamb: You et al., arXiv 1904.00962) is added to the update instead. Both reach every parameter of
    the chosen layers, biases included.

    Args:
        config: The `optimizer` section of a resolved configuration.

    Returns:
        A transformation whose updates are added to the parameters.

    Raises:
        ValueError: In `init`, if only the first layer decays and there is none.
    """

    def option(name: str) -> float:
        value: float | None = getattr(config, name)
        return OPTIMIZERS[config.name].options[name] if value is None else value

    mask = first_layer_mask if config.weight_decay_on == "first" else None
    rate, decay = step_size(config), config.weight_decay
    made: optax.GradientTransformation
    match config.name:
        case own if is_reference(own):
            options = {name: value for name in _TUNABLE if (value := getattr(config, name)) is not None}
            made = load_reference(own)(learning_rate=rate, **options)
            if not callable(getattr(made, "init", None)) or not callable(getattr(made, "update", None)):
                raise InputError(f"{own!r} must return an optax transformation, got {type(made).__name__}")
        case "adam":
            made = optax.adam(rate, option("beta1"), option("beta2"), option("epsilon"))
        case "adamw":
            return optax.adamw(rate, option("beta1"), option("beta2"), option("epsilon"), weight_decay=decay, mask=mask)
        case "adagrad":
            made = optax.adagrad(rate, eps=option("epsilon"))
        case "lamb":
            return optax.lamb(rate, option("beta1"), option("beta2"), option("epsilon"), weight_decay=decay, mask=mask)
        case "momentum":
            made = optax.sgd(rate, option("momentum"))
        case "nesterov":
            made = optax.sgd(rate, option("momentum"), nesterov=True)
        case "rmsprop":
            made = optax.rmsprop(rate, decay=option("beta2"), eps=option("epsilon"))
        case "sgd":
            made = optax.sgd(rate)
        case _:
            raise ValueError(f"optimizer.name must be one of {', '.join(OPTIMIZERS)}, got {config.name!r}")
    return optax.chain(optax.add_decayed_weights(decay, mask), made) if decay else made


def step_size(config: OptimizerConfig) -> float | optax.Schedule:
    """Return the step size of a resolved configuration: a number, or a function of the epoch, from 0.

    With W epochs of warm-up, epoch e < W has (e+1)/(W+1) of the largest. From there to `schedule_epochs` it falls as
    `optax.cosine_decay_schedule`, `linear_schedule` or `exponential_decay` do, and stays at `final_share` of the largest.

    Raises:
        ValueError: A schedule without resolved epochs.
    """
    rate, warmup = config.learning_rate, config.warmup_epochs or 0
    if config.schedule is None and not warmup:
        return rate
    falls: optax.Schedule = optax.constant_schedule(rate)
    if config.schedule is not None:
        if config.schedule_epochs is None:
            raise ValueError(f"optimizer.schedule={config.schedule} needs optimizer.schedule_epochs")
        epochs, share = config.schedule_epochs - warmup, config.final_share
        match config.schedule:
            case "cosine":
                falls = optax.cosine_decay_schedule(rate, epochs, alpha=share or 0.0)
            case "linear":
                falls = optax.linear_schedule(rate, rate * (share or 0.0), epochs)
            case "exponential":
                left = _LEFT if share is None else share
                falls = optax.exponential_decay(rate, epochs, left, end_value=rate * left)
    if not warmup:
        return falls
    return optax.join_schedules([optax.linear_schedule(rate / (warmup + 1), rate, warmup), falls], [warmup])


def first_layer_mask(params: Any) -> Any:
    """Mark the parameters of the first layer: their paths start with `convs/0`, as in all of dorylax.layers.

    Args:
        params: A pytree of parameters, for instance a Flax state.

    Returns:
        A pytree of bool with the same structure.

    Raises:
        ValueError: There is no such parameter.
    """

    def belongs(path: tuple[Any, ...], _: Any) -> bool:
        return _path_parts(path)[:2] == ["convs", "0"]

    mask = jax.tree_util.tree_map_with_path(belongs, params)
    if not any(jax.tree.leaves(mask)):
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
        first = "/".join(_path_parts(paths[0])) if paths else "nothing"
        raise ValueError(
            "optimizer.weight_decay_on is 'first', but no parameter's path starts with convs/0 "
            f"(there is {first}, …): name the model's list of layers convs, or decay all"
        )
    return mask


def _path_parts(path: tuple[Any, ...]) -> list[str]:
    """Return a JAX key path as plain names."""
    parts = (getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry))) for entry in path)
    return [str(part) for part in parts]


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
