"""Statistics over seeds: means, medians, and 95 % intervals of ratios and differences paired by seed.

With at least `FEW` seeds, intervals are percentiles of a bootstrap over pairs. With fewer seeds the bootstrap is far too
narrow, so intervals follow Student's t. A single seed gives an estimate without an interval.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

FEW = 5
"""Minimum number of seeds for a bootstrap. Intervals of fewer seeds are rough."""

_RESAMPLES = 10_000
_Pairs = Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]


@final
@dataclasses.dataclass(frozen=True)
class Interval:
    """Estimate with its 95 % interval; the ends of a single seed are NaN, so that every comparison with them is false.

    `seeds` is the number of seeds, or the minimum over several groups.
    """

    estimate: float
    low: float
    high: float
    seeds: int

    @property
    def exists(self) -> bool:
        """Whether the interval has ends."""
        return self.seeds > 1

    @property
    def few(self) -> bool:
        """Whether there are too few seeds for a bootstrap."""
        return self.seeds < FEW

    def inside(self, bound: float) -> bool:
        """Whether the whole interval lies within ± bound."""
        return -bound < self.low and self.high < bound


def mean_std(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1) of the values that are not None; None for too few values."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def median(values: Iterable[float | None]) -> float | None:
    """Median of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def mean_of_ratios(pairs: _Pairs, seed: int = 0) -> Interval:
    """Estimate the mean over groups of `mean(values) / mean(baseline)`. Each group is resampled separately.

    Args:
        pairs: `values` `[N]` and `baseline` `[N]` of at least one group. Entry k of both has the same seed, and the pair is
            resampled together.
        seed: Seed of the resampling.

    Raises:
        ValueError: There is no group, two lists differ in length, or a list is empty.
    """
    groups, found = _bootstrapped(pairs, lambda a, b: a.mean(axis=-1) / b.mean(axis=-1), seed)
    if not found.few:
        return found
    # Student's t on the logarithm keeps the ends above zero.
    residuals = [(a - float(a.mean() / b.mean()) * b) / b.mean() for a, b in groups]
    factor = math.exp(_half_width(residuals) / found.estimate) if found.estimate else 1.0
    return dataclasses.replace(found, low=found.estimate / factor, high=found.estimate * factor)


def mean_of_differences(pairs: _Pairs, seed: int = 0) -> Interval:
    """Estimate the mean over groups of the mean of `values - baseline`; see `mean_of_ratios` for arguments and errors."""
    groups, found = _bootstrapped(pairs, lambda a, b: (a - b).mean(axis=-1), seed)
    if not found.few:
        return found
    width = _half_width([a - b for a, b in groups])
    return dataclasses.replace(found, low=found.estimate - width, high=found.estimate + width)


def band(curves: np.ndarray) -> np.ndarray:
    """Compute the ends `[2, P]` of the bootstrap 95 % interval of the mean at each point of curves `[N, P]`, a row per seed.

    Of fewer than `FEW` curves it is the range.
    """
    if len(curves) < FEW:
        return np.stack([curves.min(axis=0), curves.max(axis=0)])
    chosen = np.random.default_rng(0).integers(0, len(curves), (1000, len(curves)))
    ends: np.ndarray = np.percentile(curves[chosen].mean(axis=1), [2.5, 97.5], axis=0)
    return ends


def _bootstrapped(
    pairs: _Pairs, of: Callable[[np.ndarray, np.ndarray], Any], seed: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], Interval]:
    """Return the groups, and the mean of a statistic over them with bootstrap percentiles, which are NaN for few seeds."""
    groups = [(np.asarray(values, float), np.asarray(baseline, float)) for values, baseline in pairs]
    if not groups:
        raise ValueError("a mean over groups needs at least one")
    for a, b in groups:
        if a.shape != b.shape or a.ndim != 1 or not len(a):
            raise ValueError(f"pairs need two lists of the same length ≥ 1, got shapes {a.shape} and {b.shape}")
    seeds, low, high = min(len(a) for a, _ in groups), math.nan, math.nan
    if seeds >= FEW:
        samples = []
        for number, (a, b) in enumerate(groups):
            chosen = np.random.default_rng(seed + number).integers(0, len(a), (_RESAMPLES, len(a)))
            samples.append(of(a[chosen], b[chosen]))
        low, high = map(float, np.percentile(np.mean(samples, axis=0), [2.5, 97.5]))
    return groups, Interval(float(np.mean([of(a, b) for a, b in groups])), low, high, seeds)


def _half_width(groups: Sequence[np.ndarray]) -> float:
    """Return the half width of the Student's t interval for the mean of group means; NaN if a group has a single value.

    Degrees of freedom follow Welch and Satterthwaite.
    """
    if min(map(len, groups)) < 2:
        return math.nan
    variances = np.asarray([values.var(ddof=1) / len(values) for values in groups])
    if not variances.any():
        return 0.0
    freedom = variances.sum() ** 2 / sum(v**2 / (len(g) - 1) for v, g in zip(variances, groups, strict=True))
    return float(stdtrit(freedom, 0.975) * math.sqrt(variances.sum()) / len(groups))
