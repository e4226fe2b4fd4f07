"""Compares the variants of a sweep with its baseline, seed by seed, in each group and over all groups."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import pandas  # type: ignore[import-untyped]

from dorylax.experiments import measures
from dorylax.experiments.measures import COMPARED, TO_TARGET, Question
from dorylax.experiments.names import metric_of
from dorylax.experiments.runner import history_of
from dorylax.experiments.seed_statistics import Interval, mean_of_differences, mean_of_ratios
from dorylax.experiments.sweep import Run, Study, Sweep, same
from dorylax.runs.metric import METRICS, MetricKind, score_in
from dorylax.runs.result import EpochRecord

LAST = 20
"""Evaluations at the end of a run whose accuracies are averaged."""

DIFFERENCES = ("accuracy", "best", "last")
"""Test accuracy, best validation accuracy, and the mean of the last `LAST` validation accuracies."""

AT_LEAST, AT_MOST = "≥ ", "≤ "
"""Signs of ratios that are bounds."""

_Pair = tuple[pandas.DataFrame, pandas.DataFrame]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RunHistory:
    """A run that is done: its epochs, and the content of its summary.json."""

    run: Run
    history: Sequence[EpochRecord]
    summary: Mapping[str, Any]

    @property
    def evaluated(self) -> list[EpochRecord]:
        """Epochs with a validation accuracy, or another metric that is a fraction."""
        return [record for record in self.history if record.validated and METRICS[record.judge].fraction]

    @property
    def scores(self) -> list[float]:
        """The validation accuracies of `evaluated`."""
        return [record.score("val") or 0.0 for record in self.evaluated]

    def measured(self, target: float) -> dict[str, Any]:
        """The run's numbers: of a simulation, or of training until the target, censored at the last epoch."""
        if self.run.simulation is not None:
            return {**{name: self.summary[name] for name in COMPARED}, "reached": True}
        evaluations = measures.crossing(self.scores, target)
        epochs = len(self.history) if evaluations is None else self.evaluated[evaluations - 1].epoch + 1
        return {
            "epochs": float(epochs),
            "seconds": sum(record.seconds for record in self.history[:epochs]),
            "dollars": self.history[epochs - 1].dollars if epochs else 0.0,
            "accuracy": score_in(self.summary, "test") if metric_of([self.summary]).fraction else None,
            "best": max(self.scores, default=0.0),
            "last": statistics.fmean(self.scores[-LAST:] or [0.0]),
            "reached": evaluations is not None,
        }


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """A variant compared with the baseline, on their common seeds, in one group or in several.

    A run that misses the target counts with all its epochs, and makes the ratio a bound; bounds that say nothing are left
    out. Seeds on which both miss it do not count. In several groups ratios are means over groups, each counted once; if
    the variant fails in one of them there is no ratio.

    Attributes:
        groups: Names of the groups that have the variant.
        pairs: In each group the numbers (`RunHistory.measured`) of the variant and of the baseline, a row per common seed.
        failed: Names of the groups in which it misses the target on a seed on which the baseline reaches it.
        sign: Sign of the ratios: `AT_LEAST`, `AT_MOST` or empty; None if both sides miss the target on different seeds.
        judged: Number of groups that the ratios rest on, if they are no bounds.
        ratios: Ratios to the baseline by measure.
        differences: Differences to the baseline, keyed by `DIFFERENCES`; empty for simulations.
        less: Number of groups in which the whole interval of the ratio in question is below 1.
        more: Number of groups in which it is above 1, or the variant has failed.
    """

    name: str
    question: Question
    simulated: bool
    groups: tuple[str, ...]
    pairs: Sequence[_Pair]
    failed: tuple[str, ...]
    sign: str | None
    judged: int
    ratios: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    less: int = 0
    more: int = 0

    @property
    def runs(self) -> pandas.DataFrame:
        """The numbers of the variant's runs in all groups."""
        return pandas.concat([mine for mine, _ in self.pairs])

    def mean(self, measure: str) -> float | None:
        """The mean over the variant's runs that reach the target; None if it is not known."""
        values = self.runs.loc[self.runs["reached"], measure]
        return float(values.mean()) if len(values) and values.notna().all() else None

    @property
    def compared(self) -> bool:
        """Whether any run of either side reaches the target."""
        return any(side["reached"].any() for pair in self.pairs for side in pair)

    @property
    def measure(self) -> str:
        """Name of the measure that the question is about."""
        return str(self.question.simulated if self.simulated else self.question.measure)

    @property
    def answer(self) -> Interval | None:
        """The ratio that the question is about, or the difference of accuracies; None if it is not known."""
        return (self.differences if self.measure == "accuracy" else self.ratios).get(self.measure)

    @property
    def side(self) -> int:
        """The side of 1 on which the whole interval of the ratio in question lies: -1, 1, or 0 for neither.

        Simulations of one seed hardly vary, so their estimate decides.
        """
        if (ratio := self.ratios.get(self.measure)) is None:
            return 0
        exact = self.simulated and not ratio.exists
        low, high = (ratio.estimate, ratio.estimate) if exact else (ratio.low, ratio.high)
        return int(low > 1) - int(high < 1)

    @property
    def badness(self) -> float | None:
        """The ratio or difference in question, with the sign that makes it smaller for better variants."""
        if self.answer is None:
            return None
        return self.answer.estimate if self.question.wants_less else -self.answer.estimate


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """A setting (the keys that vary) with its runs that are done, of so many `planned` ones.

    Its name is its label, or a short name within its group. The finding is None without a comparison or a seed that is
    done on both sides. Published numbers are keyed by measure.
    """

    setting: Mapping[str, Any]
    name: str
    runs: tuple[RunHistory, ...]
    planned: int
    is_baseline: bool
    finding: Finding | None
    published: Mapping[str, float]

    def mean(self, measure: str) -> float | None:
        """Mean over the seeds of a simulated variant; None if a run lacks the measure."""
        values = [run.summary[measure] for run in self.runs]
        return None if not values or None in values else statistics.fmean(values)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Variants that are compared with each other, or all variants of a sweep without a baseline.

    Attributes:
        name: The values that they have in `common`; empty if there are none.
        target: Target validation accuracy as a fraction, or None without a comparison.
        source: Source of the published numbers, if any.
        times: "simulated " if times and costs are, before their names.
    """

    name: str
    common: Mapping[str, Any]
    variants: tuple[Variant, ...]
    target: float | None
    source: str | None
    metric: MetricKind
    simulated: bool
    times: str

    @property
    def baseline(self) -> Variant | None:
        """The variant that others are compared with."""
        return next((one for one in self.variants if one.is_baseline), None)

    @property
    def findings(self) -> list[Finding]:
        """Of all variants but the baseline."""
        return [one.finding for one in self.variants if one.finding is not None and not one.is_baseline]

    @property
    def measures(self) -> tuple[str, ...]:
        """Measures with a ratio to the baseline."""
        return COMPARED if self.simulated else TO_TARGET

    @property
    def published(self) -> list[str]:
        """Names of published numbers of any variant."""
        names = {name for one in self.variants for name in one.published}
        return [name for name in (*measures.PUBLISHED, *measures.PUBLISHED_OF_TRAINED) if name in names]

    def published_ratio(self, name: str, measure: str) -> float | None:
        """The published ratio of a variant to the baseline."""
        numbers = next((one.published for one in self.variants if one.name == name), {})
        return numbers.get(measure + (measures.RATIO if self.simulated else measures.TO_TARGET_RATIO))


def analyse(study: Study) -> list[Group]:
    """Group the runs of a sweep without parts, and compare them.

    Raises:
        RunDirectoryError: A run's metrics.jsonl cannot be read.
    """
    done = [one for one in study.outcomes if one.status == "done"]
    return grouped(study.sweep, [RunHistory(one.run, history_of(study.folder, one), one.summary) for one in done])


def grouped(sweep: Sweep, done: Sequence[RunHistory]) -> list[Group]:
    """Group and compare runs that have been read."""
    groups = dict[Any, dict[Any, list[Run]]]()
    for run in sweep.runs:
        place = () if sweep.comparison is None else sweep.comparison.group(run)
        groups.setdefault(place, {}).setdefault(tuple(run.setting.items()), []).append(run)
    # The value of one key names a group if it distinguishes all groups.
    commons = [dict(place) for place in groups]
    keys = [key for key in commons[0] if len({repr(common[key]) for common in commons}) == len(commons) > 1]
    by_key, found = {one.run.key: one for one in done}, []
    for common, settings in zip(commons, groups.values(), strict=True):
        shown = {key: value for key, value in common.items() if key in keys[:1] or not keys}
        name = next(iter(settings.values()))[0].named(shown) if shown else ""
        found.append(_group(name, common, list(settings.values()), by_key, sweep))
    return found


def _group(
    name: str,
    common: Mapping[str, Any],
    settings: Sequence[Sequence[Run]],
    done: Mapping[str, RunHistory],
    sweep: Sweep,
) -> Group:
    comparison, published = sweep.comparison, sweep.published
    runs = [tuple(done[run.key] for run in planned if run.key in done) for planned in settings]
    bases = (
        place for place, (run, *_) in enumerate(settings) if comparison is not None and comparison.is_baseline(run)
    )
    base = next(bases, None)
    metric = metric_of(one.summary for of in runs for one in of)
    target = None
    # Losses and errors have no target: how far one may lie behind another depends on its unit.
    if comparison is not None and base is not None and runs[base] and (metric.fraction or sweep.simulated):
        target = 0.0 if sweep.simulated else comparison.target
        if target is None:
            target = measures.target_of([max(one.scores, default=0.0) for one in runs[base]], comparison.margin)
    variants = []
    for place, planned in enumerate(settings):
        setting, of_base = planned[0].setting, {} if base is None or base == place else settings[base][0].setting
        shown = {
            key: value
            for key, value in setting.items()
            if key not in common and not (key in of_base and same(value, of_base[key]))
        }
        title = planned[0].named(shown)
        if place == base and comparison is not None:
            title = comparison.name or title
        finding = None
        if comparison is not None and base is not None and target is not None:
            finding = compare(title, runs[place], runs[base], target, group=name, asks=comparison.asks)
        numbers = {} if published is None else published.of(setting)
        variants.append(Variant(setting, title, runs[place], len(planned), place == base, finding, numbers))
    source = None if published is None else published.source
    times = "simulated " * all(run.virtual or run.simulation is not None for run in sweep.runs)
    return Group(name, common, tuple(variants), target, source, metric, sweep.simulated, times)


def compare(
    name: str,
    runs: Sequence[RunHistory],
    baseline: Sequence[RunHistory],
    target: float,
    *,
    group: str = "",
    asks: str = "time",
) -> Finding | None:
    """Compare a variant with the baseline by seed; None if they share no seed."""
    mine, theirs = (
        pandas.DataFrame([one.measured(target) for one in of], [one.run.config.train.seed for one in of])
        for of in (runs, baseline)
    )
    seeds = [seed for seed in mine.index if seed in theirs.index]
    if not seeds:
        return None
    mine, theirs = mine.loc[seeds], theirs.loc[seeds]
    lower, upper = theirs["reached"] & ~mine["reached"], mine["reached"] & ~theirs["reached"]
    sign = None if lower.any() and upper.any() else AT_LEAST if lower.any() else AT_MOST if upper.any() else ""
    simulated, pairs = runs[0].run.simulation is not None, [(mine, theirs)]
    ratios = _ratios(pairs if sign is not None else [], simulated=simulated)
    # A bound on the other side of 1 says nothing.
    least, most = 1.0 if sign == AT_LEAST else -np.inf, 1.0 if sign == AT_MOST else np.inf
    found = Finding(
        name,
        measures.QUESTIONS[asks],
        simulated,
        groups=(group,),
        pairs=pairs,
        failed=(group,) if lower.any() else (),
        sign=sign,
        judged=int((mine["reached"] | theirs["reached"]).any() and sign == ""),
        ratios={measure: ratio for measure, ratio in ratios.items() if least <= ratio.estimate <= most},
        differences=_differences(pairs, simulated=simulated),
    )
    return dataclasses.replace(found, less=int(found.side < 0), more=int(found.side > 0))


def pool(groups: Sequence[Group]) -> list[Finding]:
    """Pool each variant over groups; empty if fewer than two groups compare anything."""
    by_name: dict[str, list[Finding]] = {}
    for one in (finding for group in groups for finding in group.findings):
        by_name.setdefault(one.name, []).append(one)
    return [_pooled(found) for found in by_name.values() if sum(bool(group.findings) for group in groups) > 1]


def _pooled(found: Sequence[Finding]) -> Finding:
    pairs, failed = [pair for one in found for pair in one.pairs], tuple(group for one in found for group in one.failed)
    fair = [] if failed else [one.pairs[0] for one in found if one.judged]
    return dataclasses.replace(
        found[0],
        groups=tuple(group for one in found for group in one.groups),
        pairs=pairs,
        failed=failed,
        sign="",
        judged=len(fair),
        ratios=_ratios(fair, simulated=found[0].simulated),
        differences=_differences(pairs, simulated=found[0].simulated),
        less=sum(one.less for one in found if not one.failed),
        more=sum(one.more for one in found if not one.failed) + len(failed),
    )


def _ratios(pairs: Sequence[_Pair], *, simulated: bool) -> dict[str, Interval]:
    """Ratios of the numbers that are known on all seeds on which a run reaches the target."""
    counted = [(mine["reached"] | theirs["reached"], mine, theirs) for mine, theirs in pairs]
    known = [(mine[seeds].dropna(axis=1), theirs[seeds].dropna(axis=1)) for seeds, mine, theirs in counted]
    return {
        name: mean_of_ratios([(mine[name], theirs[name]) for mine, theirs in known])
        for name in (COMPARED if simulated else TO_TARGET)
        if known and all(len(a) and name in a and name in b and b[name].all() for a, b in known)
    }


def _differences(pairs: Sequence[_Pair], *, simulated: bool) -> dict[str, Interval]:
    """Differences of the numbers that are known on all seeds."""
    return {
        name: mean_of_differences([(mine[name], theirs[name]) for mine, theirs in pairs])
        for name in (() if simulated else DIFFERENCES)
        if not any(side[name].isna().any() for pair in pairs for side in pair)
    }
