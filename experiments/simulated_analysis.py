"""What a sweep of simulations has shown: each setting over its seeds, beside its baseline, and beside what was published.

Pure. Nothing is learnt in such runs, so that there is no target: whole runs are compared, of as many epochs as they have.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

from dorylax.experiments.measures import COMPARED, MEASURES, RATIO
from dorylax.experiments.names import short_name
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.seed_statistics import Interval, paired_ratio
from dorylax.experiments.sentences import intervals_words, listed, times
from dorylax.experiments.sweep import Sweep, same

_WORDS = {"epoch_seconds": "the time of an epoch", "dollars": "the cost", "value": "the value"}


@final
@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedVariant:
    """A setting with its runs that are done.

    Attributes:
        name: short, within its group: beside a baseline, what is other than there.
        runs: what each was measured by, by seed.
        planned: how many runs the sweep has of it.
        is_baseline: whether the others of its group are compared with it.
        ratios: to the baseline's, of each of `COMPARED` that both have; empty of the baseline itself.
        published: by name.
    """

    name: str
    runs: Mapping[int, Mapping[str, Any]]
    planned: int
    is_baseline: bool
    ratios: Mapping[str, Interval]
    published: Mapping[str, float]

    def mean(self, measure: str) -> float | None:
        """Over the seeds; None where a run has none, or none is done."""
        values = [run[measure] for run in self.runs.values()]
        return None if not values or None in values else statistics.fmean(values)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedGroup:
    """Variants that are shown together.

    Attributes:
        name: what they have in common; empty where that is nothing.
        variants: in the order of the sweep.
        source: of what was published; None where nothing is.
    """

    name: str
    variants: tuple[SimulatedVariant, ...]
    source: str | None

    @property
    def baseline(self) -> SimulatedVariant | None:
        """What the others are compared with; None where nothing is."""
        return next((one for one in self.variants if one.is_baseline), None)

    @property
    def published(self) -> list[str]:
        """Names of what was published of any variant."""
        return [
            name
            for measure in MEASURES
            for name in (measure, measure + RATIO)
            if any(name in one.published for one in self.variants)
        ]

    @property
    def sentences(self) -> list[str]:
        """What was found, in plain words: one for each variant but the baseline."""
        base = self.baseline
        found = [] if base is None else [_sentence(one, base) for one in self.variants if one.ratios]
        rough = intervals_words(ratio for one in self.variants for ratio in one.ratios.values() if ratio.exists)
        return [*found, *[rough] * bool(rough)]


def analyse_simulated(sweep: Sweep, outcomes: Sequence[RunOutcome]) -> list[SimulatedGroup]:
    """Groups the runs of a sweep and compares them.

    Args:
        sweep: all that was planned; of simulations.
        outcomes: of its runs.
    """
    comparison = sweep.comparison
    groups: dict[Any, dict[Any, list[RunOutcome]]] = {}
    for outcome in outcomes:
        place = () if comparison is None else comparison.group(outcome.run)
        groups.setdefault(place, {}).setdefault(tuple(outcome.run.setting.items()), []).append(outcome)
    titles = _titles([dict(place) for place in groups])
    return [
        _group(title, dict(place), settings, sweep)
        for title, (place, settings) in zip(titles, groups.items(), strict=True)
    ]


def _titles(commons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names of what groups have in common: one key's value where that tells them apart."""
    for key in commons[0]:
        if len(commons) > 1 and len({repr(common[key]) for common in commons}) == len(commons):
            return [short_name({key: common[key]}) for common in commons]
    return [short_name(common) for common in commons]


def _group(
    title: str, common: Mapping[str, Any], settings: Mapping[Any, list[RunOutcome]], sweep: Sweep
) -> SimulatedGroup:
    comparison = sweep.comparison
    done = {
        setting: {one.run.config.train.seed: one.summary for one in planned if one.status == "done"}
        for setting, planned in settings.items()
    }
    base = next(
        (
            setting
            for setting, planned in settings.items()
            if comparison is not None and comparison.is_baseline(planned[0].run)
        ),
        None,
    )
    variants = []
    for setting, planned in settings.items():
        inside = {key: value for key, value in setting if key not in common}
        if base is not None and setting != base:
            inside = {key: value for key, value in inside.items() if not same(value, dict(base)[key])}
        ratios = {} if base in (None, setting) else _ratios(done[setting], done[base])
        published = {} if sweep.published is None else sweep.published.of(dict(setting))
        name = short_name(inside) if inside else planned[0].run.name
        if setting == base and comparison is not None and comparison.name is not None:
            name = comparison.name
        variants.append(SimulatedVariant(name, done[setting], len(planned), setting == base, ratios, published))
    source = None if sweep.published is None else sweep.published.source
    return SimulatedGroup(title, tuple(variants), source)


def _ratios(runs: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]]) -> dict[str, Interval]:
    """Ratios of means, paired by seed."""
    seeds = [seed for seed in runs if seed in baseline]
    found = {}
    for name in COMPARED:
        mine, theirs = ([side[seed][name] for seed in seeds] for side in (runs, baseline))
        if mine and None not in mine and all(theirs):
            found[name] = paired_ratio(mine, theirs)
    return found


def _sentence(variant: SimulatedVariant, baseline: SimulatedVariant) -> str:
    """`no-pipe has 2.07× (1.85–2.44) the time of an epoch, 1.11× the cost and 0.65× the value of pipe.`."""
    parts = [f"{times(variant.ratios[name])} {words}" for name, words in _WORDS.items() if name in variant.ratios]
    return f"{variant.name} has {listed(parts)} of {baseline.name}."
