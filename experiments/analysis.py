"""Compares the variants of a sweep with its baseline, seed by seed, in each group and over all groups."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

import pandas  # type: ignore[import-untyped]

from dorylax.experiments.convergence import Crossing, crossing, target_of
from dorylax.experiments.measures import (
    COMPARED,
    PUBLISHED,
    PUBLISHED_OF_TRAINED,
    QUESTIONS,
    RATIO,
    TO_TARGET,
    TO_TARGET_RATIO,
    Question,
)
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

    @property
    def best(self) -> float:
        """The highest validation accuracy."""
        return max(self.scores, default=0.0)

    def crossing(self, target: float) -> Crossing:
        """The epoch at which validation accuracy reached a target."""
        found, records = crossing(self.scores, target), self.evaluated
        if found.censored:
            return Crossing(len(self.history), censored=True)
        return Crossing(records[found.epochs - 1].epoch + 1, censored=False)

    def measured(self, target: float) -> dict[str, Any]:
        """The run's numbers: of a simulation, or of training until the target, censored at the last epoch."""
        if self.run.simulation is not None:
            return {**{name: self.summary[name] for name in COMPARED}, "reached": True}
        found = self.crossing(target)
        return {
            "epochs": float(found.epochs),
            "seconds": sum(record.seconds for record in self.history[: found.epochs]),
            "dollars": self.history[found.epochs - 1].dollars if found.epochs else 0.0,
            "accuracy": score_in(self.summary, "test") if metric_of([self.summary]).fraction else None,
            "best": self.best,
            "last": statistics.fmean(self.scores[-LAST:] or [0.0]),
            "reached": not found.censored,
        }


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """A variant compared with the baseline, on their common seeds, in one group or in several.

    A run that misses the target counts with all its epochs, and makes the ratio a bound; bounds that say nothing are left
    out. Seeds on which both miss it do not count. In several groups ratios are means over groups, each counted once; if
    the variant fails in one of them there is no ratio.

    Attributes:
        name: Of the variant.
        question: The question of the sweep.
        simulated: Whether the runs are simulated instead of trained.
        ratios: By measure.
        differences: By name in `DIFFERENCES`.
        seeds: Pairs of runs.
        reached: Runs of the variant that reach the target.
        baseline_reached: Runs of the baseline that do.
        sign: Of the ratios: `AT_LEAST`, `AT_MOST` or empty; None if both sides miss the target on different seeds.
        less: Number of groups in which the whole interval of the ratio in question is below 1.
        more: Number of groups in which it is above 1, or the variant has failed.
        groups: Names of the groups that have the variant.
        failed: Names of those in which it misses the target on a seed on which the baseline reaches it.
        judged: Number of groups that the ratios rest on.
        means: Means over the variant's runs that reach the target.
        pairs: The values of both sides that each ratio and difference rests on, by measure.
    """

    name: str
    question: Question
    simulated: bool
    ratios: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    seeds: int
    reached: int
    baseline_reached: int
    sign: str | None
    less: int
    more: int
    groups: tuple[str, ...]
    failed: tuple[str, ...]
    judged: int
    means: Mapping[str, float]
    pairs: Mapping[str, tuple[list[float], list[float]]] = dataclasses.field(default_factory=dict)

    @property
    def compared(self) -> bool:
        """Whether any run of either side reaches the target."""
        return bool(self.reached or self.baseline_reached)

    @property
    def accuracy(self) -> Interval | None:
        """The difference of test accuracies."""
        return self.differences.get("accuracy")

    @property
    def answer(self) -> Interval | None:
        """The ratio that the question is about, or the difference of accuracies; None if it is not known."""
        return self.accuracy if self.question.measure == "accuracy" else self.ratios.get(self.measure)

    @property
    def measure(self) -> str:
        """Name of the measure that the question is about."""
        return self.question.of(simulated=self.simulated)

    @property
    def badness(self) -> float | None:
        """The ratio or difference in question, with the sign that makes it smaller for better variants."""
        if self.answer is None:
            return None
        return self.answer.estimate if self.question.wants_less else -self.answer.estimate


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """A setting with its runs that are done.

    Attributes:
        setting: The keys that vary.
        name: Its label, or a short name within its group.
        runs: The runs.
        planned: Number of runs in the sweep.
        is_baseline: Whether the others of its group are compared with it.
        finding: Finding on the variant, or None without a comparison or a seed that is done on both sides.
        published: Published numbers, keyed by measure.
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
        name: The values that they have in common; empty if there are none.
        common: These values by key.
        variants: In the order of the sweep.
        target: Target validation accuracy, or None without a comparison.
        source: Source of the published numbers, if any.
        metric: The metric of the runs.
        simulated: Whether the runs are simulated instead of trained.
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
        return [name for name in (*PUBLISHED, *PUBLISHED_OF_TRAINED) if name in names]

    def published_ratio(self, name: str, measure: str) -> float | None:
        """The published ratio of a variant to the baseline."""
        numbers = next((one.published for one in self.variants if one.name == name), {})
        return numbers.get(measure + (RATIO if self.simulated else TO_TARGET_RATIO))


def analyse(study: Study) -> list[Group]:
    """Group the runs of a sweep without parts, and compare them.

    Raises:
        RunDirectoryError: A run's metrics.jsonl cannot be read.
    """
    done = [one for one in study.outcomes if one.status == "done"]
    return grouped(study.sweep, [RunHistory(one.run, history_of(study.folder, one), one.summary) for one in done])


def grouped(sweep: Sweep, done: Sequence[RunHistory]) -> list[Group]:
    """Group and compare runs that have been read."""
    comparison, groups = sweep.comparison, dict[Any, dict[Any, list[Run]]]()
    for run in sweep.runs:
        place = () if comparison is None else comparison.group(run)
        groups.setdefault(place, {}).setdefault(tuple(run.setting.items()), []).append(run)
    # The value of one key names a group if it distinguishes all groups.
    commons = [dict(place) for place in groups]
    keys = [key for key in commons[0] if len({repr(common[key]) for common in commons}) == len(commons) > 1]
    by_key, found = {one.run.key: one for one in done}, []
    for common, settings in zip(commons, groups.values(), strict=True):
        shown = {key: value for key, value in common.items() if key in keys[:1] or not keys}
        name = next(iter(settings.values()))[0].named(shown) if shown else ""
        found.append(_group(name, common, settings, by_key, sweep))
    return found


def _group(
    name: str,
    common: Mapping[str, Any],
    settings: Mapping[Any, Sequence[Run]],
    done: Mapping[str, RunHistory],
    sweep: Sweep,
) -> Group:
    comparison, published = sweep.comparison, sweep.published
    runs = {key: tuple(done[run.key] for run in planned if run.key in done) for key, planned in settings.items()}
    base = next(
        (key for key, planned in settings.items() if comparison is not None and comparison.is_baseline(planned[0])),
        None,
    )
    metric = metric_of(one.summary for found in runs.values() for one in found)
    simulated, target = sweep.simulated, None
    # Losses and errors have no target: how far one may lie behind another depends on its unit.
    if comparison is not None and base is not None and runs[base] and (metric.fraction or simulated):
        target = comparison.target
        if target is None:
            target = 0.0 if simulated else target_of([one.best for one in runs[base]], comparison.margin)
    variants = []
    for key, planned in settings.items():
        setting = {one: value for one, value in key if one not in common}
        if base is not None and key != base:
            setting = {one: value for one, value in setting.items() if not same(value, dict(base)[one])}
        title = planned[0].named(setting)
        if key == base and comparison is not None and comparison.name is not None:
            title = comparison.name
        finding = None
        if comparison is not None and target is not None and base is not None:
            finding = compare(title, runs[key], runs[base], target, group=name, asks=comparison.asks)
        found = {} if published is None else published.of(dict(key))
        variants.append(Variant(dict(key), title, runs[key], len(planned), key == base, finding, found))
    source = None if published is None else published.source
    times = "simulated " * all(run.virtual or run.simulation is not None for run in sweep.runs)
    return Group(name, common, tuple(variants), target, source, metric, simulated, times)


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
    judged = mine["reached"] | theirs["reached"]
    simulated = runs[0].run.simulation is not None
    names = COMPARED if simulated else (*TO_TARGET, *DIFFERENCES)
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    for column in names:
        of_all = column in DIFFERENCES
        first, second = mine[column][judged | of_all], theirs[column][judged | of_all]
        if len(first) and first.notna().all() and second.notna().all() and (of_all or second.all()):
            pairs[column] = [float(value) for value in first], [float(value) for value in second]
    lower = bool((theirs["reached"] & ~mine["reached"]).any())
    upper = bool((mine["reached"] & ~theirs["reached"]).any())
    sign = None if lower and upper else AT_LEAST if lower else AT_MOST if upper else ""
    # A bound on the other side of 1 says nothing, and neither do two.
    ratios = {column: mean_of_ratios([pair]) for column, pair in pairs.items() if column not in DIFFERENCES}
    ratios = {
        column: ratio
        for column, ratio in ratios.items()
        if sign is not None and not (lower and ratio.estimate < 1) and not (upper and ratio.estimate > 1)
    }
    reached, question = mine[mine["reached"]], QUESTIONS[asks]
    means = {
        column: float(reached[column].mean()) for column in names if len(reached) and reached[column].notna().all()
    }
    ratio = ratios.get(question.of(simulated=simulated))
    where = 0 if ratio is None else side(ratio, simulated=simulated)
    return Finding(
        name,
        question,
        simulated,
        ratios,
        {column: mean_of_differences([pairs[column]]) for column in DIFFERENCES if column in pairs},
        seeds=len(seeds),
        reached=len(reached),
        baseline_reached=int(theirs["reached"].sum()),
        sign=sign,
        less=int(where < 0),
        more=int(where > 0),
        groups=(group,),
        failed=(group,) if lower else (),
        judged=int(judged.any() and sign == ""),
        means=means,
        pairs=pairs,
    )


def side(ratio: Interval, *, simulated: bool) -> int:
    """The side of 1 on which the whole interval lies: -1, 1, or 0 for neither.

    Simulations of one seed hardly vary, so their estimate decides.
    """
    exact = simulated and not ratio.exists
    low, high = (ratio.estimate, ratio.estimate) if exact else (ratio.low, ratio.high)
    return int(low > 1) - int(high < 1)


def pool(groups: Sequence[Group]) -> list[Finding]:
    """Pool each variant over groups; empty if fewer than two groups compare anything."""
    by_name: dict[str, list[Finding]] = {}
    for group in groups:
        for one in group.findings:
            by_name.setdefault(one.name, []).append(one)
    several = sum(bool(group.findings) for group in groups) > 1
    return [_pooled(name, found) for name, found in by_name.items() if several]


def _pooled(name: str, found: Sequence[Finding]) -> Finding:
    failed = tuple(group for one in found for group in one.failed)
    fair = [] if failed else [one for one in found if one.judged]
    measures = COMPARED if found[0].simulated else TO_TARGET
    known = [column for column in measures if fair and all(column in one.pairs for one in fair)]
    differing = [column for column in DIFFERENCES if all(column in one.pairs for one in found)]
    return Finding(
        name,
        found[0].question,
        found[0].simulated,
        {column: mean_of_ratios([one.pairs[column] for one in fair]) for column in known},
        {column: mean_of_differences([one.pairs[column] for one in found]) for column in differing},
        seeds=sum(one.seeds for one in found),
        reached=sum(one.reached for one in found),
        baseline_reached=sum(one.baseline_reached for one in found),
        sign="",
        less=sum(one.less for one in found if not one.failed),
        more=sum(one.more for one in found if not one.failed) + len(failed),
        groups=tuple(group for one in found for group in one.groups),
        failed=failed,
        judged=len(fair),
        means={},
    )
