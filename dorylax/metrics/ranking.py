"""Metrics of a ranking: how far up a model puts true examples. Ties never depend on chance."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import softmax

from dorylax.graph.labels import Kind
from dorylax.metrics.base import Measure, on_all

Scores = Float[np.ndarray, " n"]
Truth = Bool[np.ndarray, " n"]


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


def _hits(k: int) -> Measure:
    return on_all(("pairs",), lambda output, labels: hits_at(k, output.reshape(-1), labels > 0.5), _one_class)


_ALL: tuple[Kind, ...] = ("classes", "several", "pairs")
MEASURES = {
    "roc_auc": on_all(_ALL, functools.partial(_of_classes, roc_auc), _one_class),
    "average_precision": on_all(_ALL, functools.partial(_of_classes, average_precision), _one_class),
    "mrr": on_all(("pairs",), lambda output, labels: reciprocal_rank(output.reshape(-1), labels > 0.5), _one_class),
    **{f"hits_at_{k}": _hits(k) for k in (10, 20, 50, 100)},
}
