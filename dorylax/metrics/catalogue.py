"""All metrics and their names, except the loss, which depends on the run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.labels import Kind
from dorylax.metrics import confusion, ranking, regression
from dorylax.metrics.base import KINDS, Measure

MEASURES: Mapping[str, Measure] = MappingProxyType({**confusion.MEASURES, **ranking.MEASURES, **regression.MEASURES})
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
