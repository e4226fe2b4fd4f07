"""Means over groups: what a sweep has shown on several data sets, learning rates, … taken together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from dorylax.experiments.analysis import AT_LEAST, DIFFERENCES, Group, Pairs, Variant
from dorylax.experiments.measures import RATIO, TO_TARGET
from dorylax.experiments.names import short_name
from dorylax.experiments.seed_statistics import Interval, mean_of_differences, mean_of_ratios
from dorylax.runs.metric import MetricKind


@final
@dataclasses.dataclass(frozen=True)
class PooledVariant:
    """A variant beside the baseline, in all groups of a pool that have it.

    Attributes:
        name: of the variant.
        groups: how many have it.
        compared: in how many of them it reaches the target on the same seeds as the baseline, on one at least. Only these
            count in what it takes to the target.
        fewer: in how many it reaches the target on seeds on which the baseline does, but not on all of them.
        runs: in all of them together, of seeds that the baseline has too.
        reached, baseline_reached: how many of these reach their target, and of the baseline's.
        means: the mean over the groups of each of `TO_TARGET` and `DIFFERENCES`, where all have it. Each group counts once;
            seeds are resampled within groups.
        less, more: of each of `TO_TARGET`, in how many groups it is less, and more, for sure.
    """

    name: str
    groups: int
    compared: int
    fewer: int
    runs: int
    reached: int
    baseline_reached: int
    means: Mapping[str, Interval]
    less: Mapping[str, int]
    more: Mapping[str, int]


@final
@dataclasses.dataclass(frozen=True)
class Pool:
    """Groups that are taken together.

    Attributes:
        name: what they have in common; empty where that is nothing.
        groups: their names.
        variants: in the order of the sweep, without the baseline.
        metric: what runs are judged by; of groups with several the first one's.
    """

    name: str
    groups: tuple[str, ...]
    variants: tuple[PooledVariant, ...]
    metric: MetricKind


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
        place = tuple((key, value) for key, value in group.common.items() if key not in over)
        found.setdefault(place, []).append(group)
    made = [pool_of(mine, short_name(dict(place))) for place, mine in found.items()]
    return [pool for pool in made if pool is not None]


def pool_of(groups: Sequence[Group], name: str = "") -> Pool | None:
    """The average over groups, whatever they differ in; None of less than two in which the baseline has runs."""
    compared = [group for group in groups if group.baseline is not None and group.target is not None]
    if len(compared) < 2:
        return None
    by_name: dict[str, list[tuple[Group, Variant]]] = {}
    for group in compared:
        for variant in group.variants:
            if not variant.is_baseline and variant.compared is not None:
                by_name.setdefault(variant.name, []).append((group, variant))
    variants = tuple(_variant(title, where) for title, where in by_name.items())
    return Pool(name, tuple(group.name for group in compared), variants, compared[0].metric)


def _variant(name: str, where: Sequence[tuple[Group, Variant]]) -> PooledVariant:
    pairs = []
    for group, variant in where:
        assert group.baseline is not None
        assert group.target is not None
        pairs.append(Pairs.of(variant.runs, group.baseline.runs, group.target))
    fair = [one for one in pairs if one.judged and one.sign == ""]
    means = {}
    for names, mean, of in ((TO_TARGET, mean_of_ratios, fair), (DIFFERENCES, mean_of_differences, pairs)):
        for what in names:
            if of and all(what in one.by_name for one in of):
                means[what] = mean([one.by_name[what] for one in of])
    ratios = {
        what: [ratio for _, one in where if (ratio := getattr(one.compared, what + RATIO)) is not None]
        for what in TO_TARGET
    }
    return PooledVariant(
        name,
        groups=len(pairs),
        compared=len(fair),
        fewer=sum(one.sign is None or one.sign == AT_LEAST for one in pairs),
        runs=sum(one.seeds for one in pairs),
        reached=sum(one.reached for one in pairs),
        baseline_reached=sum(one.baseline_reached for one in pairs),
        means=means,
        less={what: sum(one.high < 1 for one in found) for what, found in ratios.items()},
        more={what: sum(one.low > 1 for one in found) for what, found in ratios.items()},
    )
