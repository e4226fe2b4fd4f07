"""Statistics over seeds: mean, standard deviation and median; ratios and differences paired by seed, with 95 % intervals.

Of `FEW` seeds and more intervals are bootstrap ones, percentiles of resampled pairs. Of fewer these would be far too narrow
(of two seeds they hold the truth half the time), so that those are Student's t; of one seed there is none.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

FEW = 5
"""Seeds; the intervals of fewer are rough."""

_RESAMPLES = 10_000


@final
@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval.

    Attributes:
        estimate: the estimate.
        low, high: the ends; not a number, of which no comparison holds, where there are none.
        seeds: on how many it rests; of several groups, in the one that has the fewest.
    """

    estimate: float
    low: float
    high: float
    seeds: int

    @property
    def exists(self) -> bool:
        """Whether there are ends."""
        return self.seeds > 1

    @property
    def rough(self) -> bool:
        """Whether it rests on so few seeds that it says little."""
        return self.seeds < FEW

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
    groups = _groups(pairs)
    ratios = [float(first.mean() / second.mean()) for first, second in groups]
    if (few := _fewest(groups)) >= FEW:
        return _bootstrap(groups, ratios, seed, lambda first, second: first.mean(axis=-1) / second.mean(axis=-1))
    estimate = float(np.mean(ratios))
    # Of the logarithm, which keeps the ends above zero.
    residuals = [
        (first - ratio * second) / second.mean() for (first, second), ratio in zip(groups, ratios, strict=True)
    ]
    factor = math.exp(_half_width(residuals) / estimate) if estimate else 1.0
    return Interval(estimate, estimate / factor, estimate * factor, few)


def mean_of_differences(pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], seed: int = 0) -> Interval:
    """The mean over groups of `paired_difference`; arguments and errors as `mean_of_ratios`."""
    groups = _groups(pairs)
    differences = [float((first - second).mean()) for first, second in groups]
    if (few := _fewest(groups)) >= FEW:
        return _bootstrap(groups, differences, seed, lambda first, second: (first - second).mean(axis=-1))
    estimate, width = float(np.mean(differences)), _half_width([first - second for first, second in groups])
    return Interval(estimate, estimate - width, estimate + width, few)


def band(curves: np.ndarray) -> np.ndarray:
    """What lies around the mean at each point of some curves: its bootstrap 95 % interval, or of few curves their range.

    Args:
        curves: `[N, P]`, a row per seed.

    Returns:
        `[2, P]`: lower and upper ends.
    """
    if len(curves) < FEW:
        return np.stack([curves.min(axis=0), curves.max(axis=0)])
    return _percentiles(curves[_resampled(len(curves), 1000, seed=0)].mean(axis=1))


_Pair = tuple[np.ndarray, np.ndarray]


def _groups(pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]) -> list[_Pair]:
    if not pairs:
        raise ValueError("a mean over groups needs at least one")
    return [_pairs(values, baseline) for values, baseline in pairs]


def _fewest(groups: Sequence[_Pair]) -> int:
    return min(len(first) for first, _ in groups)


def _bootstrap(
    groups: Sequence[_Pair],
    estimates: Sequence[float],
    seed: int,
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Interval:
    """The mean of a statistic of each group."""
    samples = []
    for number, (first, second) in enumerate(groups):
        chosen = _resampled(len(first), _RESAMPLES, seed + number)
        samples.append(statistic(first[chosen], second[chosen]))
    low, high = map(float, _percentiles(np.mean(samples, axis=0)))
    return Interval(float(np.mean(estimates)), low, high, _fewest(groups))


def _half_width(groups: Sequence[np.ndarray]) -> float:
    """By Student's t, of the mean of the means of some groups; not a number where one has a single value.

    Degrees of freedom are Welch and Satterthwaite's: of one group its values but one.
    """
    if min(map(len, groups)) < 2:
        return math.nan
    variances = np.asarray([values.var(ddof=1) / len(values) for values in groups])
    if not variances.any():
        return 0.0
    freedom = variances.sum() ** 2 / sum(
        variance**2 / (len(values) - 1) for variance, values in zip(variances, groups, strict=True)
    )
    return float(stdtrit(freedom, 0.975) * math.sqrt(variances.sum()) / len(groups))


def _pairs(values: npt.ArrayLike, baseline: npt.ArrayLike) -> _Pair:
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
