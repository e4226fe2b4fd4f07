"""Builds the optimizer of a configuration with optax. `dorylax.Trainer` also takes any other optax transformation."""

from __future__ import annotations

from typing import Any

import jax
import optax

from dorylax.config.optimizers import OPTIMIZERS, OptimizerConfig
from dorylax.errors import InputError
from dorylax.user_code.references import is_reference, load_reference

_LEFT = 0.01  # of the step size, by an exponential schedule
_TUNABLE = sorted({name for spec in OPTIMIZERS.values() for name in spec.options})


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
