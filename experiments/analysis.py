"""What a sweep has shown: each setting over its seeds, and beside the setting that it is compared with.

Pure: the runs' histories in, numbers and sentences out. How convergence is judged is `convergence`'s.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from dorylax.experiments.convergence import Crossing, crossing, target_of
from dorylax.experiments.measures import TO_TARGET, TO_TARGET_RATIO
from dorylax.experiments.names import metric_of, short_name
from dorylax.experiments.seed_statistics import Interval, paired_difference, paired_ratio
from dorylax.experiments.sweep import Run, Sweep
from dorylax.runs.metric import METRICS, MetricKind, score_in
from dorylax.runs.result import EpochRecord

LAST = 20
"""Evaluations at the end of a run whose accuracies are averaged."""

SAME_ACCURACY = 0.005
"""Two settings are as accurate where all of the interval of their difference is within half a point."""

AT_LEAST, AT_MOST = "≥ ", "≤ "
"""What stands before ratios that are bounds."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RunHistory:
    """A run that is done.

    Attributes:
        run: which one.
        history: its epochs.
        summary: the content of its summary.json.
    """

    run: Run
    history: Sequence[EpochRecord]
    summary: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.run.config.train.seed

    @property
    def best(self) -> float:
        """The highest validation accuracy."""
        return max((record.score("val") or 0.0 for record in self.evaluated), default=0.0)

    @property
    def last(self) -> float:
        """The mean of the validation accuracies at the end: what one gets who stops by the clock, oscillation and all."""
        return statistics.fmean([record.score("val") or 0.0 for record in self.evaluated[-LAST:]] or [0.0])

    @property
    def evaluated(self) -> list[EpochRecord]:
        """Epochs with an accuracy on validation vertices, or another metric that is a fraction."""
        return [record for record in self.history if record.validated and METRICS[record.judge].fraction]

    def seconds_until(self, epochs: int) -> float:
        """Training seconds of the first so many epochs."""
        return sum(record.seconds for record in self.history[:epochs])

    def dollars_until(self, epochs: int) -> float | None:
        """US dollars of the first so many epochs; None where it costs nothing."""
        return self.history[epochs - 1].dollars if epochs else 0.0

    def crossing(self, target: float) -> Crossing:
        """When its validation accuracy reached a target, in epochs."""
        records = self.evaluated
        found = crossing([record.score("val") or 0.0 for record in records], target)
        if found.censored or not records:
            return Crossing(len(self.history), censored=True)
        return Crossing(records[found.epochs - 1].epoch + 1, censored=False)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """A setting beside its baseline, on the seeds that both have.

    A run that never reaches the target counts with all that it did where the other one of its seed reaches it, and makes
    the ratio a bound. A bound is there only where it says something: a setting that does not get there needs at least so
    much more than its baseline; that it had spent less until it ended is no gain. Seeds on which neither gets there are left
    out, and where runs of either side fail alone there is no ratio.

    Attributes:
        target: of validation accuracy, a fraction.
        seeds: how many both have.
        reached, baseline_reached: how many runs of each reach the target on these.
        judged: seeds on which one of them does, on which the ratios rest.
        sign: what stands before ratios: `AT_LEAST`, `AT_MOST`, or nothing.
        epochs, seconds, dollars: to the target, means over the runs that reach it; None where none does. Dollars are None
            also where runs cost nothing.
        epochs_ratio, seconds_ratio, dollars_ratio: relative to the baseline; None for the baseline itself, where there is
            nothing to divide, and where a bound says nothing.
        value_ratio: of 1/(seconds · dollars) to the target, relative to the baseline: Dorylus' "value".
        accuracy: the difference of test accuracies; None for the baseline, and without a test mask.
        best, last: those of the best validation accuracies, and of their means over the last `LAST` evaluations; None for
            the baseline.
    """

    target: float
    seeds: int
    reached: int
    baseline_reached: int
    judged: int
    sign: str
    epochs: float | None
    seconds: float | None
    dollars: float | None
    epochs_ratio: Interval | None
    seconds_ratio: Interval | None
    dollars_ratio: Interval | None
    value_ratio: float | None
    accuracy: Interval | None
    best: Interval | None
    last: Interval | None

    @property
    def as_accurate(self) -> bool | None:
        """Whether the difference of test accuracies is small, for sure.

        None where there is none, or no interval of it, or no run of either side reaches the target: such runs are alike in
        that they have not learnt.
        """
        return None if not self.judged else as_accurate(self.accuracy)


def as_accurate(difference: Interval | None) -> bool | None:
    """Whether a difference of accuracies is small, for sure; None where there is none, or no interval of it."""
    return None if difference is None or not difference.exists else difference.inside(SAME_ACCURACY)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """A setting with its runs that are done.

    Attributes:
        setting: the keys that vary.
        name: short, within its group.
        runs: by seed.
        planned: how many runs the sweep has of it.
        is_baseline: whether the others of its group are compared with it.
        compared: None where nothing is compared, or too little is done.
        published: by name.
    """

    setting: Mapping[str, Any]
    name: str
    runs: tuple[RunHistory, ...]
    planned: int
    is_baseline: bool
    compared: Compared | None
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Variants that are shown together: those that are compared, or all of a sweep that compares nothing.

    Attributes:
        name: what they have in common; empty where that is nothing.
        common: the keys of that with their values.
        variants: in the order of the sweep.
        target: see `Compared`; None where nothing is compared.
        source: of what was published; None where nothing is.
        metric: what its runs are judged by.
    """

    name: str
    common: Mapping[str, Any]
    variants: tuple[Variant, ...]
    target: float | None
    source: str | None = None
    metric: MetricKind = METRICS["accuracy"]

    @property
    def baseline(self) -> Variant | None:
        """What the others are compared with; None where nothing is."""
        return next((one for one in self.variants if one.is_baseline), None)

    @property
    def published(self) -> list[str]:
        """Of which of `TO_TARGET` something was published, of any variant."""
        return [name for name in TO_TARGET if any(name + TO_TARGET_RATIO in one.published for one in self.variants)]


def analyse(sweep: Sweep, done: Sequence[RunHistory]) -> list[Group]:
    """Groups the runs of a sweep and compares them.

    Args:
        sweep: all that was planned.
        done: the runs that are done.
    """
    comparison = sweep.comparison
    groups: dict[Any, dict[Any, list[Run]]] = {}
    for run in sweep.runs:
        place = () if comparison is None else comparison.group(run)
        groups.setdefault(place, {}).setdefault(tuple(run.setting.items()), []).append(run)
    by_key = {one.run.key: one for one in done}
    return [_group(place, settings, by_key, sweep) for place, settings in groups.items()]


def _group(
    place: tuple[tuple[str, Any], ...],
    settings: Mapping[Any, list[Run]],
    done: Mapping[str, RunHistory],
    sweep: Sweep,
) -> Group:
    comparison = sweep.comparison
    runs = {
        setting: tuple(done[run.key] for run in all_runs if run.key in done) for setting, all_runs in settings.items()
    }
    base = (
        None
        if comparison is None
        else next((setting for setting, planned in settings.items() if comparison.is_baseline(planned[0])), None)
    )
    target = None
    metric = metric_of(one.summary for found in runs.values() for one in found)
    # How far a loss or an error may lie behind another one depends on its unit: of those nothing is compared.
    if comparison is not None and base is not None and runs[base] and metric.fraction:
        best = [one.best for one in runs[base]]
        target = comparison.target if comparison.target is not None else target_of(best, comparison.margin)
    common = dict(place)
    variants = []
    for setting, planned in settings.items():
        compared = None
        if target is not None and base is not None:
            compared = compare(runs[setting], runs[base], target, is_baseline=setting == base)
        inside = {key: value for key, value in setting if key not in common}
        variants.append(
            Variant(
                dict(setting),
                short_name(inside) if inside else planned[0].name,
                runs[setting],
                len(planned),
                setting == base,
                compared,
                {} if sweep.published is None else sweep.published.of(dict(setting)),
            )
        )
    source = None if sweep.published is None else sweep.published.source
    return Group(short_name(common), common, tuple(variants), target, source, metric)


def compare(
    runs: Sequence[RunHistory], baseline: Sequence[RunHistory], target: float, *, is_baseline: bool = False
) -> Compared | None:
    """One setting beside its baseline, on the seeds that both have; None where there is no such seed.

    Args:
        runs: of the setting.
        baseline: of the baseline.
        target: of validation accuracy, a fraction.
        is_baseline: they are the same.
    """
    pairs = Pairs.of(runs, baseline, target)
    if not pairs.seeds:
        return None
    ratios: dict[str, Interval | None] = dict.fromkeys(TO_TARGET)
    differences: dict[str, Interval | None] = dict.fromkeys(DIFFERENCES)
    value = None
    if not is_baseline:
        for name in TO_TARGET:
            if name in pairs.by_name:
                ratios[name] = telling(paired_ratio(*pairs.by_name[name]), pairs.sign)
        differences = {
            name: paired_difference(*pairs.by_name[name]) if name in pairs.by_name else None for name in DIFFERENCES
        }
        if ratios["seconds"] is not None and ratios["dollars"] is not None:
            value = 1 / (ratios["seconds"].estimate * ratios["dollars"].estimate)
    return Compared(
        target=target,
        seeds=pairs.seeds,
        reached=pairs.reached,
        baseline_reached=pairs.baseline_reached,
        judged=pairs.judged,
        sign=pairs.sign or "",
        epochs=pairs.means["epochs"],
        seconds=pairs.means["seconds"],
        dollars=pairs.means["dollars"],
        epochs_ratio=ratios["epochs"],
        seconds_ratio=ratios["seconds"],
        dollars_ratio=ratios["dollars"],
        value_ratio=value,
        accuracy=differences["accuracy"],
        best=differences["best"],
        last=differences["last"],
    )


def telling(ratio: Interval, sign: str | None) -> Interval | None:
    """A ratio, if it is one, or a bound that says something: at least more than 1, or at most less."""
    if sign is None or (sign == AT_LEAST and ratio.estimate < 1) or (sign == AT_MOST and ratio.estimate > 1):
        return None
    return ratio


DIFFERENCES = ("accuracy", "best", "last")
"""What is compared by differences."""


@final
@dataclasses.dataclass(frozen=True)
class Pairs:
    """What runs and those of a baseline came to, on the seeds that both have.

    Attributes:
        by_name: of each of `TO_TARGET` and `DIFFERENCES` that all runs have, and that can be divided by: that of the runs,
            and of the baseline's, by seed. Of `TO_TARGET` only on seeds on which one of both reaches the target.
        means: of `TO_TARGET`, over the runs that reach it; None where none does, or they have none.
        seeds: how many there are.
        reached, baseline_reached, judged: see `Compared`.
        sign: as there; None where on some seeds only the one, and on others only the other reaches the target.
    """

    by_name: Mapping[str, tuple[list[float], list[float]]]
    means: Mapping[str, float | None]
    seeds: int
    reached: int
    baseline_reached: int
    judged: int
    sign: str | None

    @classmethod
    def of(cls, runs: Sequence[RunHistory], baseline: Sequence[RunHistory], target: float) -> Pairs:
        """Pairs runs by their seeds; `target` is of validation accuracy, a fraction."""
        others = {one.seed: one for one in baseline}
        both = [(_outcome(one, target), _outcome(others[one.seed], target)) for one in runs if one.seed in others]
        judged = [pair for pair in both if pair[0]["reached"] or pair[1]["reached"]]
        by_name = {}
        for name in (*TO_TARGET, *DIFFERENCES):
            pairs = judged if name in TO_TARGET else both
            first, second = ([pair[side][name] for pair in pairs] for side in (0, 1))
            zero = name in TO_TARGET and not all(second)
            if first and not zero and None not in first and None not in second:
                by_name[name] = first, second
        reached = [mine for mine, _ in both if mine["reached"]]
        return cls(
            by_name,
            {name: _mean([outcome[name] for outcome in reached]) for name in TO_TARGET},
            len(both),
            len(reached),
            sum(theirs["reached"] for _, theirs in both),
            len(judged),
            _sign([(mine["reached"], theirs["reached"]) for mine, theirs in judged]),
        )


def _sign(reached: Sequence[tuple[bool, bool]]) -> str | None:
    """What a ratio of means is, by whether the run and the baseline's of each seed reach the target."""
    lower, upper = (any(not pair[side] for pair in reached) for side in (0, 1))
    return None if lower and upper else AT_LEAST if lower else AT_MOST if upper else ""


def _outcome(run: RunHistory, target: float) -> dict[str, Any]:
    """What it took a run to get to the target, and how accurate it was."""
    found = run.crossing(target)
    return {
        "epochs": float(found.epochs),
        "seconds": run.seconds_until(found.epochs),
        "dollars": run.dollars_until(found.epochs),
        "accuracy": score_in(run.summary, "test") if metric_of([run.summary]).fraction else None,
        "best": run.best,
        "last": run.last,
        "reached": not found.censored,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
