"""The tables of a report: frames of text, for the page and for Markdown alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas  # type: ignore[import-untyped]

from dorylax.experiments.analysis import LAST, Finding, Group, Variant
from dorylax.experiments.measures import MEASURES, QUESTIONS
from dorylax.experiments.seed_statistics import FEW, Interval, median
from dorylax.experiments.table import spread
from dorylax.experiments.verdicts import (
    FAILS,
    MIXED,
    NONE,
    SAME_ACCURACY,
    accuracy_verdict,
    places,
    points_text,
    ratio_text,
    target_text,
    verdict,
)
from dorylax.observers.progress import dollars, duration
from dorylax.runs.metric import score_in
from dorylax.settings.errors import shown as shown_value

_DASH = "–"
_TITLES = {
    "epochs": "epochs",
    "epoch_seconds": "time of an epoch",
    "seconds": "time",
    "dollars": "cost",
    "value": "value",
}
_CAUSES = 8  # of losses that a note spells out


class Table(NamedTuple):
    """A table of text; the first column is on the left, numbers are on the right.

    Attributes:
        title: Heading; may be empty.
        frame: The cells.
        note: Explanation below; may be empty.
    """

    title: str
    frame: pandas.DataFrame
    note: str = ""

    @classmethod
    def of(cls, title: str, rows: Iterable[Mapping[str, str]], note: str = "") -> Table:
        """A table whose columns are the rows' keys; columns without any value are left out."""
        frame = pandas.DataFrame(list(rows)).fillna(_DASH)
        return cls(title, frame.loc[:, [not frame[name].isin([_DASH, ""]).all() for name in frame]], note)

    @property
    def markdown(self) -> str:
        """The table as Markdown, with its note."""
        rows = [
            list(self.frame.columns),
            ["---", *["---:"] * (len(self.frame.columns) - 1)],
            *self.frame.values.tolist(),
        ]
        lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


def verdict_table(
    title: str, groups: Sequence[Group], findings: Sequence[Finding], asks: str, *, virtual: bool
) -> Table:
    """The verdict on each variant: ratios of what it needs, the difference of accuracies, and a word.

    Args:
        title: Heading.
        groups: One group, or those over which `findings` are pooled.
        findings: On the variants.
        asks: The question, as in `Comparison`.
        virtual: Whether times are simulated.
    """
    group = groups[0]
    rows = []
    if len(groups) == 1 and group.baseline is not None:
        rows.append(_baseline_row(group, virtual=virtual))
    variants = {one.name: one for one in group.variants} if len(groups) == 1 else {}
    for one in findings:
        rows.append(_verdict_row(one, group, variants.get(one.name), asks, virtual=virtual))
    return Table.of(title, rows, _verdict_note(groups, findings))


def group_verdicts(groups: Sequence[Group], asks: str, *, virtual: bool) -> Table:
    """The same verdicts in each group, the worst first."""
    simulated = groups[0].simulated
    question = QUESTIONS[asks]

    def badness(entry: tuple[Group, Finding]) -> tuple[bool, float]:
        found = entry[1]
        if asks == "accuracy":
            difference = found.differences.get("accuracy")
            return not found.failed, difference.estimate if difference else 0.0
        ratio = found.ratios.get(question.of(simulated=simulated))
        return not found.failed, 0.0 if ratio is None else -ratio.estimate if question.wants_less else ratio.estimate

    entries = sorted(((group, one) for group in groups for one in group.findings), key=badness)
    rows = []
    for group, one in entries:
        variant = next(each for each in group.variants if each.finding is one)
        rows.append({"group": group.name, **_verdict_row(one, group, variant, asks, virtual=virtual)})
    return Table.of("In each group, the worst first", rows)


def _verdict_row(found: Finding, group: Group, variant: Variant | None, asks: str, *, virtual: bool) -> dict[str, str]:
    row = {"variant": found.name}
    for measure in group.measures:
        column = _column(measure, simulated=group.simulated, virtual=virtual)
        row[column] = ratio_text(found.ratios.get(measure), found.sign or "")
        theirs = None if variant is None else group.published_ratio(variant, measure)
        if any(group.published_ratio(one, measure) is not None for one in group.variants):
            row[f"published {_TITLES[measure]}"] = _DASH if theirs is None else f"{theirs:.2f}"
    if not group.simulated:
        row[f"{group.metric.title}, points"] = points_text(found.differences.get("accuracy"))
    row["verdict"] = verdict_words(found, asks, simulated=group.simulated)
    return row


def _column(measure: str, *, simulated: bool, virtual: bool) -> str:
    told = "simulated " if (virtual or simulated) and measure in ("seconds", "epoch_seconds") else ""
    return f"{told}{_TITLES[measure]} ×"


def _baseline_row(group: Group, *, virtual: bool) -> dict[str, str]:
    base = group.baseline
    assert base is not None
    row = {"variant": f"{base.name} (baseline)"}
    formats = {"epochs": "{:.1f}".format, "dollars": dollars, "value": "{:.3g}".format}
    for measure in group.measures:
        mean = base.mean(measure) if group.simulated else base.finding and base.finding.means.get(measure)
        column = _column(measure, simulated=group.simulated, virtual=virtual)
        row[column] = _DASH if mean is None else formats.get(measure, duration)(mean)
    if not group.simulated:
        row[f"{group.metric.title}, points"] = _score(base, "test", group)
    return {**row, "verdict": ""}


def verdict_words(found: Finding, asks: str, *, simulated: bool) -> str:
    """A verdict with its counts: `faster, as accurate`, `misses the target in 2 of 8 groups`."""
    said = verdict(found, asks, simulated=simulated)
    if said == NONE:
        return said
    if said == FAILS:
        said = f"{FAILS} {places(found)}"
    elif len(found.groups) > 1 and asks != "accuracy":
        question = QUESTIONS[asks]
        measure, total = question.of(simulated=simulated), len(found.groups)
        counts = f"{question.less} in {found.less[measure]} of {total} groups, {question.more} in {found.more[measure]}"
        said = f"{said}: {counts}" if said == MIXED else f"{said} ({counts})"
    accurate = accuracy_verdict(found) if asks != "accuracy" else ""
    return f"{said}; {accurate}" if accurate else said


def _verdict_note(groups: Sequence[Group], findings: Sequence[Finding]) -> str:
    group = groups[0]
    seeds = [interval.seeds for one in findings for interval in (*one.ratios.values(), *one.differences.values())]
    few = min((number for number in seeds if number > 1), default=1)
    kind = "bootstrap" if few >= FEW else f"Student's t and rough: {few} seeds"
    notes = ["×: ratio of means to the baseline, paired by seed" + (f"; 95 % intervals ({kind})." if few > 1 else ".")]
    if not group.simulated:
        target = "each group's own" if len(groups) > 1 else target_text(group)
        notes.append(f"Target: {target}, on the mean of three evaluations.")
        notes.append(f"As accurate: the whole interval is within ± {100 * SAME_ACCURACY:.1f} points.")
    if any(one.sign for one in findings):
        notes.append("≥ and ≤: runs that miss the target count with all their epochs.")
    if len(groups) > 1:
        notes.append("Every group counts once. A variant that misses the target in a group has no ratio.")
        for one in findings:
            if one.failed:
                notes.append(f"{one.name} misses it in: {'; '.join(one.failed)}.")
            elif one.judged < len(one.groups) and one.ratios and not group.simulated:
                notes.append(f"{one.name}: {one.judged} of {len(one.groups)} groups, in which both reach the target.")
    if group.source is not None and group.published:
        notes.append(f"Published: {group.source}.")
    return " ".join(notes)


def target_table(group: Group, *, virtual: bool) -> Table | None:
    """Absolute numbers to the target; None if no run reaches it."""
    found = [(one, one.finding) for one in group.variants if one.finding is not None]
    if group.simulated or group.target is None or not any(one.compared for _, one in found):
        return None
    simulated = "simulated " * virtual
    rows = []
    for variant, one in found:
        means = one.means
        row = {
            "variant": variant.name,
            "runs that reach it": f"{one.reached} of {one.seeds}",
            "epochs": f"{means['epochs']:.1f}" if "epochs" in means else _DASH,
            f"{simulated}time": duration(means["seconds"]) if "seconds" in means else _DASH,
            "cost": dollars(means["dollars"]) if "dollars" in means else _DASH,
        }
        if {"seconds", "dollars"} <= one.ratios.keys() and not variant.is_baseline:
            row["value ×"] = f"{1 / (one.ratios['seconds'].estimate * one.ratios['dollars'].estimate):.2f}"
        rows.append(row)
    note = "Means over the runs that reach the target. Value: 1/(time · cost), relative to the baseline."
    return Table.of("To the target", rows, note)


def results_table(group: Group, *, virtual: bool) -> Table:
    """Accuracy, loss, time and cost of each variant's runs; of simulations all measures."""
    rows = []
    for variant in group.variants:
        runs = (
            str(len(variant.runs))
            if len(variant.runs) == variant.planned
            else f"{len(variant.runs)} of {variant.planned}"
        )
        row = {"variant": variant.name, "runs": runs}
        if group.simulated:
            for name, measure in MEASURES.items():
                mean, theirs = variant.mean(name), variant.published.get(name)
                row[measure.title] = _DASH if mean is None else measure.shown(mean)
                row[f"published {measure.title}"] = _DASH if theirs is None else measure.shown(theirs)
            rows.append(row)
            continue
        title, differences = group.metric.title, {} if variant.finding is None else variant.finding.differences
        losses = [run.history[-1].loss for run in variant.runs if run.history]
        seconds = median(run.summary.get("seconds_per_epoch") for run in variant.runs)
        costs = [last for run in variant.runs if run.history and (last := run.history[-1].dollars) is not None]
        row |= {f"test {title}": _score(variant, "test", group), f"validation {title}": _score(variant, "val", group)}
        if not variant.is_baseline:
            row |= {
                "best, points": _points(differences.get("best")),
                f"last {LAST}, points": _points(differences.get("last")),
            }
        row |= {
            "final loss": f"{statistics.fmean(losses):.4f}" if losses else _DASH,
            f"{'simulated ' * virtual}time per epoch": _DASH if seconds is None else duration(seconds),
            "cost of a run": dollars(statistics.fmean(costs)) if costs else _DASH,
            "stale rows": _stale(variant),
        }
        rows.append(row)
    if group.simulated:
        note = "Simulated: nothing was trained. Means over seeds. Value: 1/(time · cost) of the run, per second and dollar."
        return Table.of("Time and cost of runs", rows, note)
    note = (
        f"Points: best validation {group.metric.title} and mean of the last {LAST} evaluations, minus the baseline's."
    )
    return Table.of("Results", rows, note if any(one.finding for one in group.variants) else "")


def _score(variant: Variant, mask: Any, group: Group) -> str:
    return spread([score_in(run.summary, mask) for run in variant.runs], group.metric)


def _points(difference: Interval | None) -> str:
    return points_text(difference)


def _stale(variant: Variant) -> str:
    counters = [(run.summary.get("pipeline") or {}).get("counters") or {} for run in variant.runs]
    read = sum(one.get("rows_read", 0) for one in counters)
    return f"{100 * sum(one.get('stale_rows', 0) for one in counters) / read:.0f} %" if read else _DASH


def losses_table(group: Group) -> Table | None:
    """Servers that were lost and replaced; None if there were none."""
    losses = [
        (variant, run, loss)
        for variant in group.variants
        for run in variant.runs
        for loss in (run.summary.get("pipeline") or {}).get("losses") or ()
    ]
    if not losses:
        return None
    rows = [
        {
            "servers": f"{variant.name}, seed {run.run.config.train.seed}: {', '.join(loss['servers'])}",
            "epoch": str(loss["epoch"]),
            "run again": duration(loss["wasted_seconds"]) if loss["repeats"] else _DASH,
            "recovered in": duration(loss["recovery_seconds"]),
        }
        for variant, run, loss in losses
    ]
    causes = [cause for _, _, loss in losses for cause in loss["causes"]]
    listed = "; ".join(dict.fromkeys(causes[:_CAUSES]))
    more = f"; and {len(causes) - _CAUSES} more" if len(causes) > _CAUSES else ""
    note = f"Lost servers were replaced. Epoch: the first one trained afterwards. Causes: {listed}{more}."
    return Table.of("Losses", rows, note)


def settings_table(settings: Sequence[tuple[str, Mapping[str, Any]]], first: str) -> Table | None:
    """The keys in which configurations differ; None if they do not.

    Args:
        settings: Names with dotted configurations.
        first: Title of the first column.
    """
    keys = dict.fromkeys(key for _, one in settings for key in one)
    differing = [key for key in keys if len({_value(one, key) for _, one in settings}) > 1]
    if not differing:
        return None
    rows = [{first: name, **{key: _value(one, key) for key in differing}} for name, one in settings]
    return Table("Different settings", pandas.DataFrame(rows))


def _value(setting: Mapping[str, Any], key: str) -> str:
    if key not in setting:
        return _DASH
    return value if isinstance(value := setting[key], str) else shown_value(value)
