"""Which prediction a name stands for."""

from __future__ import annotations

from dorylax.pipeline.parameters.prediction.base import Prediction
from dorylax.pipeline.parameters.prediction.linear import Linear
from dorylax.pipeline.parameters.prediction.optimizer import Repeated
from dorylax.pipeline.parameters.update import OptimizerStep


def choose(name: str, step: OptimizerStep) -> Prediction | None:
    """The prediction of this name; None for "none".

    Args:
        name: a value of the setting `pipeline.predict_weights`.
        step: of the optimizer.

    Raises:
        ValueError: an unknown name.
    """
    match name:
        case "none":
            return None
        case "linear":
            return Linear()
        case "optimizer":
            return Repeated(step)
        case _:
            raise ValueError(f"predict_weights must be 'none', 'linear' or 'optimizer', got {name!r}")
