"""How convergence is judged: when a run reaches a target, and what the target is.

The protocol: the target is the synchronous run's mean best validation accuracy minus one point, fixed before anything is
compared with it; a run crosses it when its validation accuracy, averaged over three epochs, reaches it; runs that never
cross are censored at their last epoch and counted (`analysis.Compared` says how); ratios and differences are paired by seed
(`seed_statistics`).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import final

import numpy as np

WINDOW = 3
"""Epochs that are averaged before the crossing of a target is judged."""


@final
@dataclasses.dataclass(frozen=True)
class Crossing:
    """When a run reached a target.

    Attributes:
        epochs: so many were trained until then, or in all where it never did.
        censored: it never did.
    """

    epochs: int
    censored: bool


def target_of(best: Sequence[float], margin: float = 0.01) -> float:
    """The target: the mean of the best validation accuracies, as fractions, minus a margin.

    Raises:
        ValueError: no run.
    """
    if not best:
        raise ValueError("a target needs at least one run, got none")
    return float(np.mean(best)) - margin


def crossing(accuracies: Sequence[float], target: float) -> Crossing:
    """When the mean over `WINDOW` epochs reaches the target; counted at the last of them.

    Args:
        accuracies: validation accuracy after each epoch.
        target: a fraction.
    """
    values = np.asarray(accuracies, float)
    if len(values) >= WINDOW:
        # Exactly rounded, so that a curve at the target has reached it.
        windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
        means = np.asarray([statistics.fmean(window) for window in windows])
        reached = np.flatnonzero(means >= target)
        if len(reached):
            return Crossing(int(reached[0]) + WINDOW, censored=False)
    return Crossing(len(values), censored=True)
