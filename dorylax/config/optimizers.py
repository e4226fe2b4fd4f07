"""Optimizers by name: the options each uses with their defaults, and how each is made with optax.

The table is plain data, and optax is imported only where it is used, so a configuration can be checked without JAX. Any
other optax transformation can be given to `dorylax.Trainer` directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Fraction, Positive, Section
from dorylax.user_code.references import UserCodeError, is_reference, load_reference

if TYPE_CHECKING:
    import optax


_LEAST = 2.0**-126  # the smallest normal number of float32; XLA takes smaller ones for 0


class OptimizerConfig(Section):
    """The optimizer. An option that the optimizer does not use may not be set."""

    section: ClassVar[str] = "optimizer"

    name: str = Field(
        default="adam",
        description="which optimizer: one of those below, or your function as `FILE.py:NAME` or `MODULE:NAME`",
    )
    learning_rate: Positive = Field(default=0.01, description="step size; with a schedule the largest")
    schedule: Literal["cosine", "linear", "exponential"] | None = Field(
        default=None, description="how the step size falls after the warm-up; null: it stays"
    )
    warmup_epochs: Count | None = Field(
        default=None, description="epochs over which the step size rises evenly, before it is the largest; null: none"
    )
    schedule_epochs: Count | None = Field(
        default=None, description="the epoch by which it has fallen, the warm-up included; null: `train.epochs`"
    )
    final_share: Fraction | None = Field(
        default=None, description="what is left of it then, as a share; null: 0, and 0.01 with exponential"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="λ: adds λ·w to the gradient (the L2 penalty λ/2·‖w‖²); decoupled from it in adamw and lamb",
    )
    weight_decay_on: Literal["all", "first"] = Field(
        default="all", description="decay all parameters or the first layer's only"
    )
    momentum: Fraction | None = Field(default=None, description="fraction of the last step that is kept")
    beta1: Fraction | None = Field(default=None, description="decay rate of the gradient's mean")
    beta2: Fraction | None = Field(default=None, description="decay rate of the squared gradient's mean")
    epsilon: Positive | None = Field(default=None, description="added to the denominator")

    @model_validator(mode="after")
    def _check(self) -> OptimizerConfig:
        for option in ("learning_rate", "epsilon"):
            value: float | None = getattr(self, option)
            if value is not None and value < _LEAST:
                raise ConfigError.of(
                    f"optimizer.{option}", f"must be ≥ {_LEAST:.3g}, below which float32 is 0, got {value}"
                )
        for option in ("schedule_epochs", "final_share"):
            if self.schedule is None and getattr(self, option) is not None:
                raise ConfigError.of(f"optimizer.{option}", f"= {getattr(self, option)} needs optimizer.schedule")
        if self.schedule == "exponential" and self.final_share == 0:
            raise ConfigError.of(
                "optimizer.final_share", "must be > 0 with optimizer.schedule=exponential, which never gets to 0"
            )
        if self.schedule_epochs is not None and (self.warmup_epochs or 0) >= self.schedule_epochs:
            raise ConfigError.of(
                "optimizer.warmup_epochs",
                f"must be < optimizer.schedule_epochs = {self.schedule_epochs}, got {self.warmup_epochs}",
            )
        return self


class OptimizerSpec(NamedTuple):
    """A named optimizer.

    Attributes:
        options: Its `optimizer.*` options beyond the common ones, with their defaults.
        decoupled: Whether weight decay stays out of the gradient's moments.
    """

    options: Mapping[str, float]
    decoupled: bool = False


def _spec(*, decoupled: bool = False, **options: float) -> OptimizerSpec:
    return OptimizerSpec(MappingProxyType(options), decoupled)


OPTIMIZERS: Mapping[str, OptimizerSpec] = MappingProxyType(
    {
        "adam": _spec(beta1=0.9, beta2=0.999, epsilon=1e-8),
        "adamw": _spec(beta1=0.9, beta2=0.999, epsilon=1e-8, decoupled=True),
        "adagrad": _spec(epsilon=1e-7),
        "lamb": _spec(beta1=0.9, beta2=0.999, epsilon=1e-6, decoupled=True),
        "momentum": _spec(momentum=0.9),
        "nesterov": _spec(momentum=0.9),
        "rmsprop": _spec(beta2=0.9, epsilon=1e-8),
        "sgd": _spec(),
    }
)
"""The values of `optimizer.name` other than references."""


_LEFT = 0.01  # of the step size, by an exponential schedule
_TUNABLE = sorted({name for spec in OPTIMIZERS.values() for name in spec.options})


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optax transformation that a resolved configuration describes.

    Coupled weight decay adds λ·w to the gradient before anything else sees it: the gradient of λ/2·‖w‖², as in the
    published GCN and GAT; also for user-defined optimizers. Decoupled decay (adamw: Loshchilov & Hutter,
    arXiv 1711.05101; lamb: You et al., arXiv 1904.00962) is added to the update instead. Both reach every parameter of
    the chosen layers, biases included.

    Args:
        config: the `optimizer` section of a resolved configuration.

    Returns:
        A transformation whose updates are added to the parameters.

    Raises:
        ValueError: at `init`, where decay on the first layer finds no first layer.
    """
    import optax

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
                raise UserCodeError(f"{own!r} must return an optax transformation, got {type(made).__name__}")
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
    """The step size of a resolved configuration: a number, or a function of the epoch, from 0.

    With W epochs of warm-up, epoch e < W has (e+1)/(W+1) of the largest. From there to `schedule_epochs` it falls as
    `optax.cosine_decay_schedule`, `linear_schedule` or `exponential_decay` do, and stays at `final_share` of the largest.

    Raises:
        ValueError: there is a schedule, and its epochs are not resolved.
    """
    import optax

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
    """Which parameters are the first layer's: those whose path starts with `convs/0`, as in all of dorylax.layers.

    Args:
        params: a pytree of parameters, a Flax state included.

    Returns:
        A pytree of bool with the same structure.

    Raises:
        ValueError: when there is no such parameter.
    """
    import jax

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
    """A JAX key path as plain names."""
    parts = (getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry))) for entry in path)
    return [str(part) for part in parts]
