"""What is minimised and what runs are judged by: classes by their accuracy, anything else by its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.errors import DorylaxError
from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.program.model.base import ModelKindError
from dorylax.program.model.loss import (
    absolute_error,
    confusion_counts,
    cross_entropy,
    masked_sums,
    micro_f1,
    squared_error,
)
from dorylax.runs.result import Metric

Loss = str | Callable[[Any, Any], Any] | None
"""A name of `LOSSES`, or `(output, labels) -> [V]`; None: "cross_entropy"."""

_CLASSES = "cross_entropy"
LOSSES: dict[str, Callable[[Any, Any], Any]] = {_CLASSES: cross_entropy, "mse": squared_error, "mae": absolute_error}
# Of what `Objective.sums` gives. With one label per vertex F1 is the accuracy.
_SCORES: dict[Metric, Callable[[np.ndarray], float]] = {
    "accuracy": micro_f1,
    "micro_f1": micro_f1,
    "loss": lambda sums: float(sums[0] / sums[1]),
}


@final
class ModelOutputError(DorylaxError, ValueError):
    """A model's output, or the loss of it, has another shape than the data ask for."""


@final
class LossError(DorylaxError, ValueError):
    """No loss of this name, or none for data of this kind."""


@final
@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss per vertex, and the metric that goes with it. What is minimised is the mean over the training vertices.

    Attributes:
        name: of the loss.
        rows: `(output, labels) -> [V]`.
        metric: what evaluations report.
    """

    name: str = _CLASSES
    rows: Callable[[Any, Any], Any] = cross_entropy
    metric: Metric = "accuracy"

    @classmethod
    def of(cls, loss: Loss, data: Dataset | AbstractData) -> Objective:
        """That of a loss on data of this kind.

        Raises:
            ValueError: there is no loss of this name, or the data have no classes for it.
            TypeError: neither a name nor a function.
        """
        chosen = _CLASSES if loss is None else loss
        if callable(chosen):
            return cls(getattr(chosen, "__qualname__", type(chosen).__name__), chosen, "loss")
        if not isinstance(chosen, str):
            raise TypeError(f"loss must be a name or a function (output, labels) -> [V], got {type(chosen).__name__}")
        if chosen not in LOSSES:
            raise LossError(f"loss must be one of {', '.join(LOSSES)} or a function, got {chosen!r}")
        if chosen == _CLASSES and data.num_classes is None:
            others = ", ".join(name for name in LOSSES if name != _CLASSES)
            raise LossError(
                f"loss={_CLASSES} needs classes, and the labels are targets (num_classes is None): give loss= one of "
                f"{others}, or a function (output, labels) -> [V]"
            )
        metric: Metric = "loss" if chosen != _CLASSES else "micro_f1" if data.multilabel else "accuracy"
        return cls(chosen, LOSSES[chosen], metric)

    @property
    def of_classes(self) -> bool:
        """Whether outputs are logits of classes."""
        return self.metric != "loss"

    def sums(self, output: Any, labels: Any, masks: Any) -> Any:
        """What `score` makes a number of, `[M, …]`, a row for each of the masks, bool `[M, V]`. May be traced."""
        if self.of_classes:
            return confusion_counts(output, labels, masks)
        return masked_sums(self.rows(output, labels), masks)

    def score(self, sums: np.ndarray) -> float:
        """The metric of one mask, which is not empty."""
        return _SCORES[self.metric](sums)

    def check(self, model: str, output: Any, data: Dataset | AbstractData) -> None:
        """Looks at shapes alone.

        Args:
            model: its name.
            output: shapes of what it returns.
            data: the data set.

        Raises:
            ValueError: the output is not `[V, num_classes]`, or the loss is not `[V]`.
            TypeError: the output is no floating array, or the loss is not floating.
        """
        if self.of_classes:
            _check_logits(model, output, data)
            return
        labels = jax.ShapeDtypeStruct(data.labels.shape, jax.dtypes.canonicalize_dtype(data.labels.dtype))
        try:
            rows = jax.eval_shape(self.rows, output, labels)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            first = str(error).strip().split("\n")[0]
            raise ModelOutputError(
                f"loss {self.name}(output, labels) fails on what {model} returns: {type(error).__name__}: {first}"
            ) from error
        if getattr(rows, "shape", None) != (data.graph.num_vertices,):
            raise ModelOutputError(
                f"loss {self.name}(output, labels) must give one number per vertex, shape [V] = "
                f"[{data.graph.num_vertices}], got {_shown(rows)}: return the loss of each vertex, the mean is taken here"
            )
        if not jnp.issubdtype(rows.dtype, jnp.floating):
            raise ModelKindError(f"loss {self.name}(output, labels) must give real numbers, got {rows.dtype}")


CLASSES = Objective()
"""Cross-entropy, judged by accuracy."""


def _check_logits(model: str, output: Any, data: Dataset | AbstractData) -> None:
    if not isinstance(output, jax.ShapeDtypeStruct) or not jnp.issubdtype(output.dtype, jnp.floating):
        raise ModelKindError(
            f"{model}(graph, x) must return one floating-point array [V, num_classes], got {_shown(output)}"
            + ("" if isinstance(output, jax.ShapeDtypeStruct) else ": give loss=, a function of what it returns")
        )
    wanted = (data.graph.num_vertices, data.num_classes)
    if output.shape != wanted:
        raise ModelOutputError(
            f"{model}(graph, x) must return [V, num_classes] = {list(wanted)}, got {list(output.shape)}"
            + (f": give it out_features={wanted[1]}" if output.shape[:1] == wanted[:1] else "")
        )


def _shown(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, jax.ShapeDtypeStruct) else repr(value)
