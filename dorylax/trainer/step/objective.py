"""The loss that training minimises, and the metric that judges runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from dorylax.errors import InputError
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.metrics.catalogue import KINDS, MEASURES, Measure, check_metric
from dorylax.program.model.base import ModelKindError
from dorylax.program.model.loss import (
    absolute_error,
    binary_cross_entropy,
    cross_entropy,
    huber,
    masked_sums,
    squared_error,
)

Loss = str | Callable[[Any, Any], Any] | None
"""A name of `LOSSES`, or `(output, labels) -> [V]`; None: the usual loss for the labels (`_USUAL`)."""

_CLASSES, _PAIRS = "cross_entropy", "binary_cross_entropy"
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    _CLASSES: cross_entropy,
    "mse": squared_error,
    "mae": absolute_error,
    "huber": huber,
    _PAIRS: binary_cross_entropy,
}
_USUAL = {"classes": _CLASSES, "several": _CLASSES, "targets": "mse", "pairs": _PAIRS}


@final
@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss per vertex and a metric. Training minimises the mean loss over the training vertices.

    Attributes:
        name: Name of the loss.
        rows: `(output, labels) -> [V]`.
        metric: Name of the metric that evaluations report.
    """

    name: str = _CLASSES
    rows: Callable[[Any, Any], Any] = cross_entropy
    metric: str = "accuracy"

    @classmethod
    def of(cls, loss: Loss, data: Dataset | AbstractData, metric: str | None = None) -> Objective:
        """Build the objective of a loss and a metric, by default the usual ones, for data of this kind.

        Raises:
            ValueError: There is no loss or metric of this name, or it does not fit labels of this kind.
            TypeError: The loss is neither a name nor a function.
        """
        kind = data.kind
        if metric is not None:
            check_metric(metric, kind)
        chosen = _USUAL[kind] if loss is None else loss
        if callable(chosen):
            return cls(getattr(chosen, "__qualname__", type(chosen).__name__), chosen, metric or "loss")
        if not isinstance(chosen, str):
            raise TypeError(f"loss must be a name or a function (output, labels) -> [V], got {type(chosen).__name__}")
        if chosen not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(LOSSES)} or a function, got {chosen!r}")
        if (kind == "pairs") != (chosen == _PAIRS):
            wanted = f"pairs of vertices take {_PAIRS}" if kind == "pairs" else "it is for pairs of vertices"
            raise InputError(f"loss={chosen} is not for {KINDS[kind]}: {wanted}, or a function (output, labels) -> [N]")
        if chosen == _CLASSES and kind == "targets":
            others = ", ".join(name for name in LOSSES if name not in (_CLASSES, _PAIRS))
            raise InputError(
                f"loss={_CLASSES} needs classes, and the labels are targets (num_classes is None): give loss= one of "
                f"{others}, or a function (output, labels) -> [V]"
            )
        if kind == "pairs":
            return cls(chosen, LOSSES[chosen], metric or "roc_auc")
        usual = "loss" if chosen != _CLASSES else "micro_f1" if kind == "several" else "accuracy"
        return cls(chosen, LOSSES[chosen], metric or usual)

    @property
    def of_classes(self) -> bool:
        """Whether outputs are logits of classes."""
        return self.name == _CLASSES or (self.name != _PAIRS and bool({"classes", "several"} & set(self.measure.kinds)))

    @property
    def measure(self) -> Measure:
        """Computation of the metric."""
        if self.metric != "loss":
            return MEASURES[self.metric]
        return Measure(
            (),
            lambda output, labels, masks: masked_sums(self.rows(output, labels), masks),
            lambda sums, mask: float(sums[mask][0] / sums[mask][1]),
            additive=True,
        )

    def sums(self, output: Any, labels: Any, masks: Any) -> Any:
        """Return sums from which `score` computes the metric, for masks bool `[M, V]`. May be traced."""
        return self.measure.sums(output, labels, masks)

    def score(self, sums: Any, mask: int) -> float:
        """Return the metric of one of the masks, which must not be empty."""
        return self.measure.value(sums, mask)

    def check(self, model: str, output: Any, data: Dataset | AbstractData) -> None:
        """Check shapes and types of a model's output.

        Args:
            model: Name of the model.
            output: Abstract output of the model.
            data: The data set.

        Raises:
            ValueError: The output is not `[V, num_classes]`, or the loss is not `[V]`.
            TypeError: The output is not a floating-point array, or the loss is not floating-point.
        """
        if self.of_classes:
            _check_logits(model, output, data)
        if self.name != _CLASSES:
            _check_rows(f"loss {self.name}", self.rows, model, output, data)
        if "targets" in self.measure.kinds:
            _check_rows(f"metric {self.metric}", absolute_error, model, output, data)


CLASSES = Objective()
"""Cross-entropy, judged by accuracy."""


def _check_rows(
    what: str, function: Callable[[Any, Any], Any], model: str, output: Any, data: Dataset | AbstractData
) -> None:
    """Check that a loss, or a metric's sum, gives one number per vertex."""
    labels = jax.ShapeDtypeStruct(data.labels.shape, jax.dtypes.canonicalize_dtype(data.labels.dtype))
    try:
        rows = jax.eval_shape(function, output, labels)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        first = str(error).strip().split("\n")[0]
        raise InputError(
            f"{what}(output, labels) fails on what {model} returns: {type(error).__name__}: {first}"
        ) from error
    if getattr(rows, "shape", None) != data.labels.shape[:1]:
        raise InputError(
            f"{what}(output, labels) must give one number per vertex, shape [V] = "
            f"[{data.labels.shape[0]}], got {_shown(rows)}: return the loss of each vertex, the mean is taken here"
        )
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        raise ModelKindError(f"{what}(output, labels) must give real numbers, got {rows.dtype}")


def _check_logits(model: str, output: Any, data: Dataset | AbstractData) -> None:
    if not isinstance(output, jax.ShapeDtypeStruct) or not jnp.issubdtype(output.dtype, jnp.floating):
        raise ModelKindError(
            f"{model}(graph, x) must return one floating-point array [V, num_classes], got {_shown(output)}"
            + ("" if isinstance(output, jax.ShapeDtypeStruct) else ": give loss=, a function of what it returns")
        )
    wanted = (data.labels.shape[0], data.num_classes)
    if output.shape != wanted:
        raise InputError(
            f"{model}(graph, x) must return [V, num_classes] = {list(wanted)}, got {list(output.shape)}"
            + (f": give it out_features={wanted[1]}" if output.shape[:1] == wanted[:1] else "")
        )


def _shown(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, jax.ShapeDtypeStruct) else repr(value)
