"""Statistics over seeds: mean, standard deviation and median; ratios and differences paired by seed; bootstrap intervals."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import final

import numpy as np
import numpy.typing as npt

_RESAMPLES = 10_000


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


def mean_std(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1) of the values that there are; None where there are too few."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def median(values: Iterable[float | None]) -> float | None:
    """The median of the values that there are; None where there is none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def paired_ratio(values: npt.ArrayLike, baseline: npt.ArrayLike, seed: int = 0) -> Interval:
    """The ratio of means, `mean(values) / mean(baseline)`; seeds are resampled, each with both of its runs.

    Args:
        values: `[N]`.
        baseline: `[N]`, run k of both has the same seed.
        seed: of the resampling.

    Raises:
        ValueError: of different lengths, or empty.
    """
    return mean_of_ratios([(values, baseline)], seed)


def paired_difference(values: npt.ArrayLike, baseline: npt.ArrayLike, seed: int = 0) -> Interval:
    """The mean of `values - baseline`; arguments and errors as `paired_ratio`."""
    return mean_of_differences([(values, baseline)], seed)


def mean_of_ratios(pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], seed: int = 0) -> Interval:
    """The mean over groups of `paired_ratio`; the seeds of each group are resampled on their own.

    Args:
        pairs: of each group, `values` and `baseline` as for `paired_ratio`; at least one group.
        seed: of the resampling.

    Raises:
        ValueError: lists of different lengths, or empty.
    """
    return _mean(pairs, seed, lambda first, second: first.mean(axis=-1) / second.mean(axis=-1))


def mean_of_differences(pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], seed: int = 0) -> Interval:
    """The mean over groups of `paired_difference`; arguments and errors as `mean_of_ratios`."""
    return _mean(pairs, seed, lambda first, second: (first - second).mean(axis=-1))


def band(curves: np.ndarray) -> np.ndarray:
    """The bootstrap 95 % interval of the mean at each point of some curves.

    Args:
        curves: `[N, P]`, a row per seed.

    Returns:
        `[2, P]`: lower and upper ends.
    """
    return _percentiles(curves[_resampled(len(curves), 1000, seed=0)].mean(axis=1))


def _mean(
    pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    seed: int,
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Interval:
    """The mean of a statistic of each group."""
    if not pairs:
        raise ValueError("a mean over groups needs at least one")
    estimates, samples = [], []
    for number, (values, baseline) in enumerate(pairs):
        first, second = _pairs(values, baseline)
        chosen = _resampled(len(first), _RESAMPLES, seed + number)
        estimates.append(statistic(first, second))
        samples.append(statistic(first[chosen], second[chosen]))
    return Interval(float(np.mean(estimates)), *map(float, _percentiles(np.mean(samples, axis=0))))


def _pairs(values: npt.ArrayLike, baseline: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(values, float), np.asarray(baseline, float)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(f"pairs need two lists of the same length ≥ 1, got shapes {first.shape} and {second.shape}")
    return first, second


def _resampled(count: int, times: int, seed: int) -> np.ndarray:
    """Indices of `times` resamples of so many values."""
    return np.random.default_rng(seed).integers(0, count, (times, count))


def _percentiles(means: np.ndarray) -> np.ndarray:
    """The ends of the interval, of means along the first axis."""
    ends: np.ndarray = np.percentile(means, [2.5, 97.5], axis=0)
    return ends
