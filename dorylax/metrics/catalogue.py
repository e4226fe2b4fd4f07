"""All metrics by name but the loss, which is the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from dorylax.graph.labels import Kind
from dorylax.metrics import confusion, ranking, regression
from dorylax.metrics.base import KINDS, Measure, MetricError

MEASURES: Mapping[str, Measure] = MappingProxyType({**confusion.MEASURES, **ranking.MEASURES, **regression.MEASURES})
ADDITIVE = (*(name for name, measure in MEASURES.items() if measure.additive), "loss")
"""Metrics that servers can compute of their own rows."""


def check_metric(name: str, kind: Kind) -> None:
    """Passes where a metric is for labels of this kind; the loss always is.

    Raises:
        MetricError: there is none of this name, or it is for others.
    """
    fitting = [*(one for one, measure in MEASURES.items() if kind in measure.kinds), "loss"]
    if name not in fitting:
        fault = f"is not for {KINDS[kind]}" if name in MEASURES else "is no metric"
        raise MetricError(f"train.metric = {name} {fault}: choose one of {', '.join(fitting)}")


def check_defined(name: str, labels: np.ndarray, masks: dict[str, np.ndarray]) -> None:
    """Passes where a metric can be computed on every mask that is not empty.

    Raises:
        MetricError: it is not defined on one, and why.
    """
    if name not in MEASURES:
        return
    for title, mask in masks.items():
        if mask.any() and (why := MEASURES[name].undefined(np.asarray(labels)[mask])):
            raise MetricError(
                f"train.metric = {name} is not defined on {title}: it {why}. Choose another metric, or another split"
            )
