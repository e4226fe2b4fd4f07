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
from dorylax.runs.metric import METRICS, score_in
from dorylax.runs.result import EpochRecord

LAST = 20
"""Evaluations at the end of a run whose accuracies are averaged."""

SAME_ACCURACY = 0.005
"""Two settings are as accurate where all of the interval of their difference is within half a point."""

_SIGNS = {(False, False): "", (True, False): "≥ ", (False, True): "≤ ", (True, True): "≈ "}
"""By whether runs and the baseline's were censored."""

_BOUNDS = {(False, False): "", (True, False): "at least ", (False, True): "at most ", (True, True): "about "}
"""What a ratio is, by whether runs of the setting, and of its baseline, never reach the target."""


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

    Attributes:
        target: of validation accuracy, a fraction.
        epochs, seconds, dollars: to the target, means over the seeds; a run that never reaches it counts with all that it
            did, which makes them lower bounds. Dollars are None where runs cost nothing.
        censored: how many never reach it.
        baseline_censored: how many of the baseline's runs on these seeds never do, which makes ratios upper bounds.
        epochs_ratio, seconds_ratio, dollars_ratio: relative to the baseline; None for the baseline itself, and where there
            is nothing to divide.
        value_ratio: of 1/(seconds · dollars) to the target, relative to the baseline: Dorylus' "value".
        accuracy: the difference of test accuracies; None for the baseline, and without a test mask.
        best, last: those of the best validation accuracies, and of their means over the last `LAST` evaluations; None for
            the baseline.
        seeds: on how many seeds this rests.
    """

    target: float
    epochs: float
    seconds: float
    dollars: float | None
    censored: int
    epochs_ratio: Interval | None
    seconds_ratio: Interval | None
    dollars_ratio: Interval | None
    value_ratio: float | None
    accuracy: Interval | None
    best: Interval | None
    last: Interval | None
    seeds: int
    baseline_censored: int = 0

    @property
    def sign(self) -> str:
        """What stands before ratios: "≥ ", "≤ " or "≈ " where runs were censored, else nothing."""
        return _SIGNS[self.censored > 0, self.baseline_censored > 0]

    @property
    def as_accurate(self) -> bool | None:
        """Whether the difference of test accuracies is small, for sure; None where there is none, or one seed alone."""
        return None if self.accuracy is None or self.seeds < 2 else self.accuracy.inside(SAME_ACCURACY)


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
    """

    name: str
    common: Mapping[str, Any]
    variants: tuple[Variant, ...]
    target: float | None
    source: str | None = None

    @property
    def baseline(self) -> Variant | None:
        """What the others are compared with; None where nothing is."""
        return next((one for one in self.variants if one.is_baseline), None)

    @property
    def published(self) -> list[str]:
        """Of which of `TO_TARGET` something was published, of any variant."""
        return [name for name in TO_TARGET if any(name + TO_TARGET_RATIO in one.published for one in self.variants)]

    @property
    def sentences(self) -> list[str]:
        """What was found, in plain words: one for each variant but the baseline."""
        base = self.baseline
        if base is None:
            return []
        return [sentence(one, base) for one in self.variants if not one.is_baseline and one.compared is not None]


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
    if comparison is not None and base is not None and runs[base]:
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
    return Group(short_name(common), common, tuple(variants), target, source)


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
        ratios = {name: paired_ratio(*pairs.by_name[name]) if name in pairs.by_name else None for name in TO_TARGET}
        differences = {
            name: paired_difference(*pairs.by_name[name]) if name in pairs.by_name else None for name in DIFFERENCES
        }
        if ratios["seconds"] is not None and ratios["dollars"] is not None:
            value = 1 / (ratios["seconds"].estimate * ratios["dollars"].estimate)
    return Compared(
        target=target,
        epochs=pairs.means["epochs"] or 0.0,
        seconds=pairs.means["seconds"] or 0.0,
        dollars=pairs.means["dollars"],
        censored=pairs.censored,
        epochs_ratio=ratios["epochs"],
        seconds_ratio=ratios["seconds"],
        dollars_ratio=ratios["dollars"],
        value_ratio=value,
        accuracy=differences["accuracy"],
        best=differences["best"],
        last=differences["last"],
        seeds=pairs.seeds,
        baseline_censored=pairs.baseline_censored,
    )


DIFFERENCES = ("accuracy", "best", "last")
"""What is compared by differences."""


@final
@dataclasses.dataclass(frozen=True)
class Pairs:
    """What runs and those of a baseline came to, on the seeds that both have.

    Attributes:
        by_name: of each of `TO_TARGET` and `DIFFERENCES` that all runs have, and that can be divided by: that of the runs,
            and of the baseline's, by seed.
        means: of `TO_TARGET`, over the runs; None where they have none.
        seeds: how many there are.
        censored, baseline_censored: see `Compared`.
    """

    by_name: Mapping[str, tuple[list[float], list[float]]]
    means: Mapping[str, float | None]
    seeds: int
    censored: int
    baseline_censored: int

    @classmethod
    def of(cls, runs: Sequence[RunHistory], baseline: Sequence[RunHistory], target: float) -> Pairs:
        """Pairs runs by their seeds; `target` is of validation accuracy, a fraction."""
        others = {one.seed: one for one in baseline}
        both = [(one, others[one.seed]) for one in runs if one.seed in others]
        mine, theirs = (
            ([_outcome(one, target) for one in side] for side in zip(*both, strict=True)) if both else ([], [])
        )
        by_name = {}
        for name in (*TO_TARGET, *DIFFERENCES):
            first, second = ([outcome[name] for outcome in side] for side in (mine, theirs))
            zero = name in TO_TARGET and not all(second)
            if first and not zero and None not in first and None not in second:
                by_name[name] = first, second
        means = {name: _mean([outcome[name] for outcome in mine]) for name in TO_TARGET}
        censored, baseline_censored = (sum(outcome["censored"] for outcome in side) for side in (mine, theirs))
        return cls(by_name, means, len(both), censored, baseline_censored)


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
        "censored": found.censored,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def sentence(variant: Variant, baseline: Variant) -> str:
    """What a comparison has shown, in plain words.

    `async S=1 needs 1.31× (1.22–1.40) the epochs of pipe and 0.84× (0.80–0.88) the time; it is as accurate, …`
    """
    found = variant.compared
    assert found is not None
    bound = _BOUNDS[found.censored > 0, found.baseline_censored > 0]
    parts: list[str] = []
    for ratio, what in (
        (found.epochs_ratio, "the epochs"),
        (found.seconds_ratio, "the time"),
        (found.dollars_ratio, "the cost"),
    ):
        if ratio is not None:
            of = f" of {baseline.name}" if not parts else ""
            parts.append(f"{bound}{times(ratio, found.seeds)} {what}{of}")
    text = f"{variant.name} needs {listed(parts)}" if parts else f"{variant.name} cannot be compared"
    if found.censored:
        text += f"; {found.censored} of {found.seeds} runs never reach the target"
    if found.baseline_censored:
        text += f"; {found.baseline_censored} of {found.seeds} runs of {baseline.name} never reach the target"
    if found.accuracy is not None and found.seeds < 2:
        text += f"; on this one seed its accuracy differs by {100 * found.accuracy.estimate:+.2f} points"
    elif found.accuracy is not None:
        low, middle, high = (100 * x for x in (found.accuracy.low, found.accuracy.estimate, found.accuracy.high))
        points = f"{middle:+.2f} points ({low:+.2f} to {high:+.2f})"
        same = "is as accurate" if found.as_accurate else "may differ in accuracy"
        if not found.as_accurate and not found.accuracy.low <= 0 <= found.accuracy.high:
            same = "is more accurate" if found.accuracy.estimate > 0 else "is less accurate"
        text += f"; it {same}: {points}"
    return text + "."


def times(ratio: Interval, seeds: int) -> str:
    """A ratio with its interval, of which there is none on one seed: `1.31× (1.22–1.40)`."""
    return f"{ratio.estimate:.2f}×" + (f" ({ratio.low:.2f}–{ratio.high:.2f})" if seeds > 1 else "")


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`; at least one."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
