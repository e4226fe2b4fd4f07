"""Metrics of regression, over all entries of targets `[V]` or `[V, T]`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dorylax.metrics.base import Measure, on_all
from dorylax.program.model.loss import absolute_error, masked_sums, squared_error


def r2(output: np.ndarray, targets: np.ndarray) -> float:
    """Return 1 - Σ(y - ŷ)² / Σ(y - ȳ)², the mean over targets; NaN if a target is constant."""
    wide = targets.astype(np.float64).reshape(len(targets), -1)
    unexplained = np.square(wide - output.reshape(wide.shape)).sum(axis=0)
    spread = np.square(wide - wide.mean(axis=0)).sum(axis=0)
    return float(np.mean(1 - unexplained / spread)) if (spread > 0).all() else math.nan


def _constant(targets: np.ndarray) -> str:
    wide = targets.reshape(len(targets), -1)
    return "needs targets that vary, and one is the same everywhere" if (wide == wide[0]).all(axis=0).any() else ""


def _mean(sums: Any, mask: int) -> float:
    total, count = sums[mask]
    return float(total / count)


MEASURES = {
    "mae": Measure(
        ("targets",),
        lambda output, labels, masks: masked_sums(absolute_error(output, labels), masks),
        _mean,
        additive=True,
    ),
    "rmse": Measure(
        ("targets",),
        lambda output, labels, masks: masked_sums(squared_error(output, labels), masks),
        lambda sums, mask: math.sqrt(_mean(sums, mask)),
        additive=True,
    ),
    "r2": on_all(("targets",), r2, _constant),
}
