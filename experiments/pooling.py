"""Means over groups: what a sweep has shown on several data sets, learning rates, … taken together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from dorylax.experiments.analysis import DIFFERENCES, Group, Pairs, Variant
from dorylax.experiments.measures import TO_TARGET
from dorylax.experiments.names import short_name
from dorylax.experiments.seed_statistics import Interval, mean_of_differences, mean_of_ratios


@final
@dataclasses.dataclass(frozen=True)
class PooledVariant:
    """A variant beside the baseline, in all groups of a pool that have it.

    Attributes:
        name: of the variant.
        groups: how many have it.
        runs: in all of them together, of seeds that the baseline has too.
        censored: how many never reach their target, and of the baseline's runs.
        means: the mean over the groups of each of `TO_TARGET` and `DIFFERENCES`, where all have it. Each group counts once;
            seeds are resampled within groups.
    """

    name: str
    groups: int
    runs: int
    censored: tuple[int, int]
    means: Mapping[str, Interval]


@final
@dataclasses.dataclass(frozen=True)
class Pool:
    """Groups that differ only in keys over which is averaged.

    Attributes:
        name: what they have in common; empty where that is nothing.
        groups: their names.
        variants: in the order of the sweep, without the baseline.
    """

    name: str
    groups: tuple[str, ...]
    variants: tuple[PooledVariant, ...]


def pools(groups: Sequence[Group], over: Sequence[str]) -> list[Pool]:
    """Averages over groups.

    Args:
        groups: of a sweep; those in which the baseline has no runs yet are left out.
        over: keys in which groups of a pool differ.

    Returns:
        Those of at least two groups.
    """
    found: dict[tuple[tuple[str, Any], ...], list[Group]] = {}
    for group in groups:
        if group.baseline is not None and group.target is not None:
            place = tuple((key, value) for key, value in group.common.items() if key not in over)
            found.setdefault(place, []).append(group)
    return [_pool(short_name(dict(place)), mine) for place, mine in found.items() if len(mine) > 1]


def _pool(name: str, groups: Sequence[Group]) -> Pool:
    by_name: dict[str, list[tuple[Group, Variant]]] = {}
    for group in groups:
        for variant in group.variants:
            if not variant.is_baseline and variant.compared is not None:
                by_name.setdefault(variant.name, []).append((group, variant))
    variants = tuple(_variant(name, where) for name, where in by_name.items())
    return Pool(name, tuple(group.name for group in groups), variants)


def _variant(name: str, where: Sequence[tuple[Group, Variant]]) -> PooledVariant:
    pairs = []
    for group, variant in where:
        assert group.baseline is not None
        assert group.target is not None
        pairs.append(Pairs.of(variant.runs, group.baseline.runs, group.target))
    means = {}
    for names, mean in ((TO_TARGET, mean_of_ratios), (DIFFERENCES, mean_of_differences)):
        for what in names:
            if all(what in one.by_name for one in pairs):
                means[what] = mean([one.by_name[what] for one in pairs])
    censored = sum(one.censored for one in pairs), sum(one.baseline_censored for one in pairs)
    return PooledVariant(name, len(pairs), sum(one.seeds for one in pairs), censored, means)
