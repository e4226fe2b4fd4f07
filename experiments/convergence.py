"""The target of a comparison, and the epoch at which a run reaches it.

The target is the baseline's mean best validation accuracy minus one point. A run reaches it when its validation accuracy,
averaged over three evaluations, does. A run that never does is censored at its last epoch.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

WINDOW = 3
"""Evaluations averaged before a crossing is judged."""


class Crossing(NamedTuple):
    """Epochs until a run reached a target, or all its epochs if `censored`."""

    epochs: int
    censored: bool


def target_of(best: Sequence[float], margin: float = 0.01) -> float:
    """Mean of the best validation accuracies (fractions) minus a margin.

    Raises:
        ValueError: There is no run.
    """
    if not best:
        raise ValueError("a target needs at least one run, got none")
    return float(np.mean(best)) - margin


def crossing(accuracies: Sequence[float], target: float) -> Crossing:
    """Find the last of the first `WINDOW` evaluations whose mean reaches the target.

    Args:
        accuracies: Validation accuracy after each epoch.
        target: A fraction.
    """
    for end in range(WINDOW, len(accuracies) + 1):
        if statistics.fmean(accuracies[end - WINDOW : end]) >= target:  # exactly rounded
            return Crossing(end, censored=False)
    return Crossing(len(accuracies), censored=True)
