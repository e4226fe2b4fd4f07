"""How convergence is compared: epochs to a target, ratios paired by seed, bootstrap intervals.

The protocol: the target is the synchronous run's mean best validation accuracy minus one point, fixed before anything is
compared with it; a run crosses it when its validation accuracy, averaged over three epochs, reaches it; runs that never
cross are censored at their last epoch and counted, never dropped; ratios and differences are paired by seed.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

WINDOW = 3
"""Epochs that are averaged before the crossing of a target is judged."""

_RESAMPLES = 10_000


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


@final
@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap 95 % interval (percentiles of resampled pairs)."""

    estimate: float
    low: float
    high: float

    def inside(self, bound: float) -> bool:
        """Whether all of the interval lies within ± bound."""
        return -bound < self.low and self.high < bound


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


def paired_ratio(values: npt.ArrayLike, baseline: npt.ArrayLike, seed: int = 0) -> Interval:
    """The ratio of means, `mean(values) / mean(baseline)`; seeds are resampled, each with both of its runs.

    Args:
        values: `[N]`.
        baseline: `[N]`, run k of both has the same seed.
        seed: of the resampling.

    Raises:
        ValueError: of different lengths, or empty.
    """
    first, second = _pairs(values, baseline)
    chosen = _resamples(len(first), seed)
    ratios = first[chosen].mean(axis=1) / second[chosen].mean(axis=1)
    return Interval(float(first.mean() / second.mean()), *_percentiles(ratios))


def paired_difference(values: npt.ArrayLike, baseline: npt.ArrayLike, seed: int = 0) -> Interval:
    """The mean of `values - baseline`; arguments and errors as `paired_ratio`."""
    first, second = _pairs(values, baseline)
    differences = first - second
    return Interval(float(differences.mean()), *_percentiles(differences[_resamples(len(first), seed)].mean(axis=1)))


def _pairs(values: npt.ArrayLike, baseline: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(values, float), np.asarray(baseline, float)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(f"pairs need two lists of the same length ≥ 1, got shapes {first.shape} and {second.shape}")
    return first, second


def _resamples(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, count, (_RESAMPLES, count))


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
