"""What runs can be judged by: names, and which way is better. How each is computed is `dorylax.metrics`'s to say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple


class MetricKind(NamedTuple):
    """What everyone who shows or compares a metric must know.

    Attributes:
        title: what people read.
        higher: whether more is better.
        fraction: whether it is a share in 0 … 1, shown in per cent.
    """

    title: str
    higher: bool = True
    fraction: bool = True

    def better(self, value: float, other: float) -> bool:
        """Whether a value is better than another."""
        return value > other if self.higher else value < other

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is at least as good as a target."""
        return value == target or self.better(value, target)

    def shown(self, value: float) -> str:
        """A value as people read it."""
        return f"{100 * value:.1f} %" if self.fraction else f"{value:.4f}"


MetricName = Literal[
    "accuracy",
    "micro_f1",
    "macro_f1",
    "roc_auc",
    "average_precision",
    "mrr",
    "hits_at_10",
    "hits_at_20",
    "hits_at_50",
    "hits_at_100",
    "mae",
    "rmse",
    "r2",
    "loss",
]
METRICS: Mapping[str, MetricKind] = MappingProxyType(
    {
        "accuracy": MetricKind("accuracy"),
        "micro_f1": MetricKind("micro-F1"),
        "macro_f1": MetricKind("macro-F1"),
        "roc_auc": MetricKind("ROC-AUC"),
        "average_precision": MetricKind("average precision"),
        "mrr": MetricKind("MRR"),
        "hits_at_10": MetricKind("Hits@10"),
        "hits_at_20": MetricKind("Hits@20"),
        "hits_at_50": MetricKind("Hits@50"),
        "hits_at_100": MetricKind("Hits@100"),
        "mae": MetricKind("MAE", higher=False, fraction=False),
        "rmse": MetricKind("RMSE", higher=False, fraction=False),
        "r2": MetricKind("R²", fraction=False),
        "loss": MetricKind("loss", higher=False, fraction=False),
    }
)
"""Name → what it is; `train.metric` takes these."""
ACCURACIES = ("accuracy", "micro_f1")
"""Metrics whose values are called accuracies in records and tables."""


def score_in(summary: Mapping[str, Any], mask: Literal["val", "test"]) -> float | None:
    """What a summary.json says its run has come to on validation or test examples, whichever metric it is."""
    names = (f"{mask}_accuracy", f"{mask}_loss", f"{mask}_score")
    return next((value for name in names if (value := summary.get(name)) is not None), None)
