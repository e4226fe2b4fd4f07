"""Metrics by name: sums computed next to the outputs, and the number derived from them for a mask.

Additive sums over examples (accuracy, F1, errors) are computed with the outputs, on the device or by each server. Metrics
that rank examples need all scores together: their outputs are copied to the host, and ranked in float64. Ties never depend
on chance. The loss depends on the run and is no entry.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32
from scipy.special import softmax

from dorylax.errors import InputError
from dorylax.graph.labels import Kind
from dorylax.program.model.loss import (
    Labels,
    absolute_error,
    confusion_counts,
    masked_sums,
    micro_f1,
    squared_error,
)

Scores = Float[np.ndarray, " n"]
Truth = Bool[np.ndarray, " n"]

KINDS: dict[Kind, str] = {
    "classes": "one class for each example",
    "several": "several classes for each example",
    "pairs": "pairs of vertices",
    "targets": "targets, which are numbers",
}


class Measure(NamedTuple):
    """Computation of a metric.

    Attributes:
        kinds: Kinds of labels that it fits.
        sums: `(output, labels, masks bool [M, N]) -> arrays`, traced; `[M, …]` if additive.
        value: `(arrays on the host, number of the mask) -> number`; NaN if it is not defined.
        additive: Whether `sums` of some examples add up to those of all.
        undefined: `(labels of a mask [n, …]) -> reason`, empty if it is defined on them; n ≥ 1.
    """

    kinds: Sequence[Kind]
    sums: Callable[[Any, Any, Any], Any]
    value: Callable[[Any, int], float]
    additive: bool
    undefined: Callable[[np.ndarray], str] = lambda labels: ""  # noqa: ARG005


def _on_all(
    kinds: Sequence[Kind],
    value: Callable[[np.ndarray, np.ndarray], float],
    undefined: Callable[[np.ndarray], str] = lambda labels: "",  # noqa: ARG005
) -> Measure:
    """Return a metric of all examples of a mask together: `value(output in float64, labels)`."""

    def of_mask(gathered: Any, mask: int) -> float:
        output, labels, masks = map(np.asarray, gathered)
        return value(output[masks[mask]].astype(np.float64), labels[masks[mask]])

    return Measure(kinds, lambda *gathered: gathered, of_mask, False, undefined)


def class_counts(logits: Float[Array, "V C"], labels: Labels, masks: Bool[Array, "M V"]) -> Int32[Array, "M C 3"]:
    """Count true positives, false positives and false negatives of each class, over each mask's vertices."""
    if labels.ndim == 1:
        classes = jnp.arange(logits.shape[1])
        predicted, true = jnp.argmax(logits, axis=1)[:, None] == classes, labels[:, None] == classes
    else:
        predicted, true = logits > 0, labels > 0.5
    found = jnp.stack([predicted & true, predicted & ~true, ~predicted & true], axis=2)

    def over(mask: Any) -> Any:
        return jnp.where(mask[:, None, None], found, False).sum(axis=0, dtype=jnp.int32)

    counts: Array = jax.lax.map(over, masks)
    return counts


def macro_f1(counts: Int32[np.ndarray, "C 3"]) -> float:
    """Return the mean over classes of 2 TP / (2 TP + FP + FN), without classes that are neither present nor predicted."""
    hits, *misses = np.asarray(counts).astype(np.int64).T
    total = 2 * hits + sum(misses)
    return float(np.mean(2 * hits[total > 0] / total[total > 0])) if total.any() else 0.0


def roc_auc(scores: Scores, true: Truth) -> float:
    """Return the share of pairs (true, false) whose true example has the higher score, with ties counted half.

    NaN unless there are both.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(true, scores)) if 0 < true.sum() < len(true) else math.nan


def average_precision(scores: Scores, true: Truth) -> float:
    """Return Σ (R_k - R_{k-1}) P_k over the distinct scores in descending order, with precision P and recall R.

    There is no interpolation. NaN if there are no true examples.
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(true, scores)) if true.any() else math.nan


def reciprocal_rank(scores: Scores, true: Truth) -> float:
    """Return the MRR: the mean of 1/rank of each true example among itself and all false ones.

    The rank counts higher scores, and half of equal scores (Open Graph Benchmark). NaN if there are no true examples.
    """
    return float(np.mean(1 / ranks_among(scores[true], np.sort(scores[~true])))) if true.any() else math.nan


def ranks_among(scores: Scores, others: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
    """Return the rank of each score among other, sorted scores: 1 + higher ones + half of the equal ones."""
    above = len(others) - np.searchsorted(others, scores, side="right")
    equal = len(others) - above - np.searchsorted(others, scores, side="left")
    ranks: np.ndarray = 1 + above + equal / 2
    return ranks


def hits_at(k: int, scores: Scores, true: Truth) -> float:
    """Return Hits@K, the share of true examples above the K-th best false one; 1 if there are fewer false ones (OGB)."""
    if not true.any():
        return math.nan
    others = scores[~true]
    if len(others) < k:
        return 1.0
    return float(np.mean(scores[true] > np.partition(others, -k)[-k]))


def _of_classes(one: Callable[[Scores, Truth], float], output: np.ndarray, labels: np.ndarray) -> float:
    """Extend a metric of two classes to more: the mean over each class against the rest, where it is defined."""
    if output.ndim == 1 or (output.shape[1] == 1 and labels.ndim == 1):
        return one(output.reshape(-1), labels > 0.5)
    if labels.ndim == 1 and output.shape[1] == 2:
        return one(output[:, 1] - output[:, 0], labels == 1)
    if labels.ndim == 1:  # probabilities, since logits of different examples are not comparable
        output, labels = softmax(output, axis=1), labels[:, None] == np.arange(output.shape[1])
    found = [
        one(scores, true > 0.5) for scores, true in zip(output.T, labels.T, strict=True) if 0 < true.sum() < len(true)
    ]
    return float(np.mean(found)) if found else math.nan


def _one_class(labels: np.ndarray) -> str:
    needs = "needs examples that are of a class and examples that are not"
    if labels.ndim == 1:
        only = labels[0]
        return f"{needs}, and all are of {f'{only:g}'}" if (labels == only).all() else ""
    return f"{needs}, and no class has both" if (labels == labels[0]).all() else ""


def r2(output: np.ndarray, targets: np.ndarray) -> float:
    """Return 1 - Σ(y - ŷ)² / Σ(y - ȳ)², the mean over targets; NaN if a target is constant."""
    wide = targets.astype(np.float64).reshape(len(targets), -1)
    unexplained = np.square(wide - output.reshape(wide.shape)).sum(axis=0)
    spread = np.square(wide - wide.mean(axis=0)).sum(axis=0)
    return float(np.mean(1 - unexplained / spread)) if (spread > 0).all() else math.nan


def _constant(targets: np.ndarray) -> str:
    wide = targets.reshape(len(targets), -1)
    return "needs targets that vary, and one is the same everywhere" if (wide == wide[0]).all(axis=0).any() else ""


def _added(kinds: Sequence[Kind], sums: Callable[[Any, Any, Any], Any], value: Callable[[Any], float]) -> Measure:
    """Return a metric of sums that add up: `value(sums of a mask)`."""
    return Measure(kinds, sums, lambda found, mask: value(found[mask]), additive=True)


def _errors(error: Callable[[Any, Any], Any], value: Callable[[float], float]) -> Measure:
    """Return a metric of the mean error of all entries of targets: `value(mean)`."""
    return _added(
        ("targets",),
        lambda output, labels, masks: masked_sums(error(output, labels), masks),
        lambda sums: value(float(sums[0] / sums[1])),
    )


def _of_pairs(one: Callable[[Scores, Truth], float]) -> Measure:
    return _on_all(("pairs",), lambda output, labels: one(output.reshape(-1), labels > 0.5), _one_class)


_CLASSES: tuple[Kind, ...] = ("classes", "several")
MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "accuracy": _added(("classes",), confusion_counts, micro_f1),
        "micro_f1": _added(_CLASSES, confusion_counts, micro_f1),
        "macro_f1": _added(_CLASSES, class_counts, macro_f1),
        "roc_auc": _on_all((*_CLASSES, "pairs"), functools.partial(_of_classes, roc_auc), _one_class),
        "average_precision": _on_all(
            (*_CLASSES, "pairs"), functools.partial(_of_classes, average_precision), _one_class
        ),
        "mrr": _of_pairs(reciprocal_rank),
        **{f"hits_at_{k}": _of_pairs(functools.partial(hits_at, k)) for k in (10, 20, 50, 100)},
        "mae": _errors(absolute_error, float),
        "rmse": _errors(squared_error, math.sqrt),
        "r2": _on_all(("targets",), r2, _constant),
    }
)
ADDITIVE = (*(name for name, measure in MEASURES.items() if measure.additive), "loss")
"""Metrics that servers can compute from their rows."""


def check_metric(name: str, kind: Kind) -> None:
    """Check that a metric fits labels of this kind; the loss always does.

    Raises:
        InputError: There is no metric of this name, or it fits other kinds.
    """
    fitting = [*(one for one, measure in MEASURES.items() if kind in measure.kinds), "loss"]
    if name not in fitting:
        fault = f"is not for {KINDS[kind]}" if name in MEASURES else "is no metric"
        raise InputError(f"train.metric = {name} {fault}: choose one of {', '.join(fitting)}")


def check_defined(name: str, labels: np.ndarray, masks: dict[str, np.ndarray]) -> None:
    """Check that a metric is defined on every non-empty mask.

    Raises:
        InputError: The metric is undefined on a mask; the message gives the reason.
    """
    if name not in MEASURES:
        return
    for title, mask in masks.items():
        if mask.any() and (why := MEASURES[name].undefined(np.asarray(labels)[mask])):
            raise InputError(
                f"train.metric = {name} is not defined on {title}: it {why}. Choose another metric, or another split"
            )
