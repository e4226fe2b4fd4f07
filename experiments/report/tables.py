"""The tables of a report: frames of text, for the page and for Markdown alike."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas  # type: ignore[import-untyped]

from dorylax.experiments import verdicts
from dorylax.experiments.analysis import LAST, Finding, Group, Variant
from dorylax.experiments.measures import MEASURES
from dorylax.experiments.names import plain
from dorylax.experiments.report.page import DASH, Table
from dorylax.experiments.seed_statistics import FEW, median
from dorylax.experiments.table import spread
from dorylax.observers.progress import dollars, duration
from dorylax.runs.metric import score_in

_TITLES = {
    "epochs": "epochs",
    "epoch_seconds": "time of an epoch",
    "seconds": "time",
    "dollars": "cost",
    "value": "value",
}
_CAUSES = 8  # of losses that a note spells out


def verdict_table(title: str, groups: Sequence[Group], findings: Sequence[Finding]) -> Table:
    """The verdict on each variant, with its ratios to the baseline and the difference of accuracies.

    Args:
        title: Heading.
        groups: One group, or those over which `findings` are pooled.
        findings: On the variants.
    """
    group, rows = groups[0], []
    if len(groups) == 1 and group.baseline is not None:
        rows.append(_baseline_row(group, group.baseline))
    rows += [_verdict_row(one, group, pooled=len(groups) > 1) for one in findings]
    return Table.of(title, rows, _verdict_note(groups, findings))


def group_verdicts(groups: Sequence[Group]) -> Table:
    """The verdicts in each group, the worst first."""
    entries = [(group, one) for group in groups for one in group.findings]
    entries.sort(key=lambda entry: (not entry[1].failed, -(entry[1].badness or 0.0)))
    rows = [{"group": group.name, **_verdict_row(one, group)} for group, one in entries]
    return Table.of("In each group, the worst first", rows)


def _verdict_row(found: Finding, group: Group, *, pooled: bool = False) -> dict[str, str]:
    row = {"variant": found.name}
    for measure in group.measures:
        row[ratio_title(group, measure)] = verdicts.ratio_text(found.ratios.get(measure), found.sign or "")
        theirs = None if pooled else group.published_ratio(found.name, measure)
        row[f"published {_TITLES[measure]}"] = DASH if theirs is None else f"{theirs:.2f}"
    if not group.simulated:
        row[f"{group.metric.title}, points"] = verdicts.points_text(found.accuracy)
    return {**row, "verdict": verdicts.verdict_words(found)}


def ratio_title(group: Group, measure: str) -> str:
    """Return the name of a ratio, such as `simulated time ×`."""
    return f"{group.times if 'seconds' in measure else ''}{_TITLES[measure]} ×"


def _baseline_row(group: Group, base: Variant) -> dict[str, str]:
    row = {"variant": f"{base.name} (baseline)"}
    formats = {"epochs": "{:.1f}".format, "dollars": dollars, "value": "{:.3g}".format}
    for measure in group.measures:
        mean = base.mean(measure) if group.simulated else base.finding and base.finding.means.get(measure)
        row[ratio_title(group, measure)] = DASH if mean is None else formats.get(measure, duration)(mean)
    if not group.simulated:
        row[f"{group.metric.title}, points"] = _score(base, "test", group)
    return {**row, "verdict": ""}


def _verdict_note(groups: Sequence[Group], findings: Sequence[Finding]) -> str:
    group = groups[0]
    seeds = [interval.seeds for one in findings for interval in (*one.ratios.values(), *one.differences.values())]
    few = min((number for number in seeds if number > 1), default=1)
    kind = "bootstrap" if few >= FEW else f"Student's t and rough: {few} seeds"
    notes = ["×: ratio of means to the baseline, paired by seed" + (f"; 95 % intervals ({kind})." if few > 1 else ".")]
    if not group.simulated:
        target = "each group's own" if len(groups) > 1 else verdicts.target_text(group)
        notes.append(f"Target: {target}, on the mean of three evaluations.")
        notes.append(f"As accurate: the whole interval is within ± {100 * verdicts.SAME_ACCURACY:.1f} points.")
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


def target_table(group: Group) -> Table | None:
    """Absolute numbers to the target; None if no run reaches it."""
    found = [(one, one.finding) for one in group.variants if one.finding is not None]
    if group.simulated or not any(one.compared for _, one in found):
        return None
    rows = []
    for variant, one in found:
        means, ratios = one.means, one.ratios
        row = {
            "variant": variant.name,
            "runs that reach it": f"{one.reached} of {one.seeds}",
            "epochs": f"{means['epochs']:.1f}" if "epochs" in means else DASH,
            f"{group.times}time": duration(means["seconds"]) if "seconds" in means else DASH,
            "cost": dollars(means["dollars"]) if "dollars" in means else DASH,
        }
        if {"seconds", "dollars"} <= ratios.keys() and not variant.is_baseline:
            row["value ×"] = f"{1 / (ratios['seconds'].estimate * ratios['dollars'].estimate):.2f}"
        rows.append(row)
    note = "Means over the runs that reach the target. Value: 1/(time · cost), relative to the baseline."
    return Table.of("To the target", rows, note)


def results_table(group: Group) -> Table:
    """Accuracy, loss, time and cost of each variant's runs; of simulations all measures."""
    rows, last_points = [], f"last {LAST}, points"
    for variant in group.variants:
        done = len(variant.runs)
        row = {
            "variant": variant.name,
            "runs": str(done) if done == variant.planned else f"{done} of {variant.planned}",
        }
        rows.append(row)
        if group.simulated:
            for name, measure in MEASURES.items():
                for title, value in (("", variant.mean(name)), ("published ", variant.published.get(name))):
                    row[f"{title}{measure.title}"] = DASH if value is None else measure.shown(value)
            continue
        title, differences = group.metric.title, {} if variant.finding is None else variant.finding.differences
        ends = [run.history[-1] for run in variant.runs if run.history]
        seconds = median(run.summary.get("seconds_per_epoch") for run in variant.runs)
        costs = [end.dollars for end in ends if end.dollars is not None]
        row |= {f"test {title}": _score(variant, "test", group), f"validation {title}": _score(variant, "val", group)}
        if not variant.is_baseline:
            row |= {"best, points": verdicts.points_text(differences.get("best"))}
            row |= {last_points: verdicts.points_text(differences.get("last"))}
        row |= {
            "final loss": f"{statistics.fmean(end.loss for end in ends):.4f}" if ends else DASH,
            f"{group.times}time per epoch": DASH if seconds is None else duration(seconds),
            "cost of a run": dollars(statistics.fmean(costs)) if costs else DASH,
            "stale rows": _stale(variant),
        }
    if group.simulated:
        note = "Simulated: nothing was trained. Means over seeds. Value: 1/(time · cost) of the run, per second and dollar."
        return Table.of("Time and cost of runs", rows, note)
    note = (
        f"Points: best validation {group.metric.title} and mean of the last {LAST} evaluations, minus the baseline's."
    )
    return Table.of("Results", rows, note if any(one.finding for one in group.variants) else "")


def _score(variant: Variant, mask: Any, group: Group) -> str:
    return spread([score_in(run.summary, mask) for run in variant.runs], group.metric)


def _stale(variant: Variant) -> str:
    counters = [(run.summary.get("pipeline") or {}).get("counters") or {} for run in variant.runs]
    read = sum(one.get("rows_read", 0) for one in counters)
    return f"{100 * sum(one.get('stale_rows', 0) for one in counters) / read:.0f} %" if read else DASH


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
            "run again": duration(loss["wasted_seconds"]) if loss["repeats"] else DASH,
            "recovered in": duration(loss["recovery_seconds"]),
        }
        for variant, run, loss in losses
    ]
    causes = [cause for _, _, loss in losses for cause in loss["causes"]]
    listed = "; ".join(dict.fromkeys(causes[:_CAUSES]))
    more = f"; and {len(causes) - _CAUSES} more" if len(causes) > _CAUSES else ""
    note = f"Lost servers were replaced. Epoch: the first one trained afterwards. Causes: {listed}{more}."
    return Table.of("Losses", rows, note)


def settings_table(title: str, settings: Sequence[tuple[str, Mapping[str, Any]]], first: str) -> Table | None:
    """The keys in which configurations differ; None if they do not.

    Args:
        title: Heading.
        settings: Names with dotted configurations.
        first: Title of the first column.
    """
    frame = pandas.DataFrame([{key: plain(value) for key, value in one.items()} for _, one in settings]).fillna(DASH)
    frame = frame.loc[:, frame.nunique() > 1]
    if frame.empty:
        return None
    frame.insert(0, first, [name for name, _ in settings])
    return Table(title, frame)
