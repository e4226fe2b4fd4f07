"""Optimizers by name, and the options of each with their defaults. `dorylax.trainer.from_config` builds them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Fraction, Positive, Section

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
        default=None, description="shape of the decay of the step size after the warm-up; null: constant"
    )
    warmup_epochs: Count | None = Field(
        default=None, description="epochs over which the step size rises linearly to its maximum; null: none"
    )
    schedule_epochs: Count | None = Field(
        default=None, description="last epoch of the decay, counted from the start of the warm-up; null: `train.epochs`"
    )
    final_share: Fraction | None = Field(
        default=None, description="final step size as a share of the maximum; null: 0, and 0.01 with exponential"
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
