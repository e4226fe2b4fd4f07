"""Metrics that judge runs: names, and the better direction. `dorylax.metrics` computes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple


class MetricKind(NamedTuple):
    """How to show and compare the values of a metric.

    Attributes:
        title: Name for people.
        higher: Whether higher values are better.
        fraction: Whether values are shares in 0 … 1, shown in per cent.
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
        """Return a value as text for people."""
        return f"{100 * value:.1f} %" if self.fraction else f"{value:.4f}"


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
"""Metrics by name; `train.metric` takes these."""
if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]
ACCURACIES = ("accuracy", "micro_f1")
"""Metrics whose values are called accuracies in records and tables."""


def score_in(summary: Mapping[str, Any], mask: Literal["val", "test"]) -> float | None:
    """Return the validation or test score in a summary.json, for any metric."""
    names = (f"{mask}_accuracy", f"{mask}_loss", f"{mask}_score")
    return next((value for name in names if (value := summary.get(name)) is not None), None)
