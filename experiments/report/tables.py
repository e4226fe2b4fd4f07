"""The tables of a report: frames of text, for the page and for Markdown alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas  # type: ignore[import-untyped]

from dorylax.experiments import conclusions
from dorylax.experiments.analysis import LAST, Finding, Group, Variant
from dorylax.experiments.measures import MEASURES
from dorylax.experiments.names import plain
from dorylax.experiments.report.page import DASH, Table
from dorylax.experiments.seed_statistics import FEW, mean_std, median
from dorylax.experiments.table import spread
from dorylax.observers.progress import dollars, duration
from dorylax.runs.metric import METRICS, score_in

_TITLES = {
    "epochs": "epochs",
    "epoch_seconds": "time of an epoch",
    "seconds": "time",
    "dollars": "cost",
    "value": "value",
}
_FORMATS = {"epochs": "{:.1f}".format, "dollars": dollars, "value": "{:.3g}".format}  # others are durations
_CAUSES = 8  # of losses that a note spells out


def verdict_table(title: str, groups: Sequence[Group], findings: Sequence[Finding]) -> Table:
    """The verdict on each variant, with its ratios to the baseline and the difference of accuracies.

    The findings are those of one group, or pooled over several groups.
    """
    group, rows = groups[0], []
    if len(groups) == 1 and (base := group.baseline) is not None:
        row = {"variant": f"{base.name} (baseline)"}
        for measure in group.measures:
            mean = base.mean(measure) if group.simulated else base.finding and base.finding.mean(measure)
            row[ratio_title(group, measure)] = _shown(measure, mean)
        row |= {} if group.simulated else {f"{group.metric.title}, points": _score(base, "test", group)}
        rows.append({**row, "verdict": ""})
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
        row[ratio_title(group, measure)] = conclusions.ratio_text(found.ratios.get(measure), found.sign or "")
        theirs = None if pooled else group.published_ratio(found.name, measure)
        row[f"published {_TITLES[measure]}"] = DASH if theirs is None else f"{theirs:.2f}"
    if not group.simulated:
        row[f"{group.metric.title}, points"] = conclusions.points_text(found.differences.get("accuracy"))
    return {**row, "verdict": conclusions.verdict_words(found)}


def ratio_title(group: Group, measure: str) -> str:
    """Return the name of a ratio, such as `simulated time ×`."""
    return f"{group.times if 'seconds' in measure else ''}{_TITLES[measure]} ×"


def _shown(measure: str, value: float | None) -> str:
    return DASH if value is None else _FORMATS.get(measure, duration)(value)


def _verdict_note(groups: Sequence[Group], findings: Sequence[Finding]) -> str:
    group, several = groups[0], len(groups) > 1
    seeds = [interval.seeds for one in findings for interval in (*one.ratios.values(), *one.differences.values())]
    few = min((number for number in seeds if number > 1), default=1)
    kind = "bootstrap" if few >= FEW else f"Student's t and rough: {few} seeds"
    notes = ["×: ratio of means to the baseline, paired by seed" + (f"; 95 % intervals ({kind})." if few > 1 else ".")]
    if not group.simulated:
        target = "each group's own" if several else conclusions.target_text(group)
        notes.append(f"Target: {target}, on the mean of three evaluations.")
        notes.append(f"As accurate: the whole interval is within ± {100 * conclusions.SAME_ACCURACY:.1f} points.")
    if any(one.sign for one in findings):
        notes.append("≥ and ≤: runs that miss the target count with all their epochs.")
    if several:
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
    found = [(variant, variant.finding) for variant in group.variants if variant.finding is not None]
    if group.simulated or not any(one.compared for _, one in found):
        return None
    rows = []
    for variant, one in found:
        row = {"variant": variant.name, "runs that reach it": f"{one.runs['reached'].sum()} of {len(one.runs)}"}
        for measure in group.measures:
            title = f"{group.times}time" if measure == "seconds" else _TITLES[measure]
            row[title] = _shown(measure, one.mean(measure))
        if {"seconds", "dollars"} <= one.ratios.keys() and not variant.is_baseline:
            row["value ×"] = f"{1 / (one.ratios['seconds'].estimate * one.ratios['dollars'].estimate):.2f}"
        rows.append(row)
    note = "Means over the runs that reach the target. Value: 1/(time · cost), relative to the baseline."
    return Table.of("To the target", rows, note)


def results_table(group: Group) -> Table:
    """Accuracy, loss, time and cost of each variant's runs; of simulations all measures."""
    if group.simulated:
        note = "Simulated: nothing was trained. Means over seeds. Value: 1/(time · cost) of the run, per second and dollar."
        return Table.of("Time and cost of runs", map(_simulated_row, group.variants), note)
    title = group.metric.title
    note = f"Points: best validation {title} and mean of the last {LAST} evaluations, minus the baseline's."
    compared = any(one.finding for one in group.variants)
    return Table.of("Results", [_result_row(variant, group) for variant in group.variants], note if compared else "")


def _first_cells(variant: Variant) -> dict[str, str]:
    done = len(variant.runs)
    return {"variant": variant.name, "runs": f"{done}" if done == variant.planned else f"{done} of {variant.planned}"}


def _simulated_row(variant: Variant) -> dict[str, str]:
    row = _first_cells(variant)
    for name, measure in MEASURES.items():
        for title, value in (("", variant.mean(name)), ("published ", variant.published.get(name))):
            row[f"{title}{measure.title}"] = DASH if value is None else measure.shown(value)
    return row


def _result_row(variant: Variant, group: Group) -> dict[str, str]:
    differences = {} if variant.finding is None or variant.is_baseline else variant.finding.differences
    ends = [run.history[-1] for run in variant.runs if run.history]
    loss, _ = mean_std(end.loss for end in ends)
    cost, _ = mean_std(end.dollars for end in ends)
    seconds = median(run.summary.get("seconds_per_epoch") for run in variant.runs)
    return {
        **_first_cells(variant),
        f"test {group.metric.title}": _score(variant, "test", group),
        f"validation {group.metric.title}": _score(variant, "val", group),
        "final loss": DASH if loss is None else METRICS["loss"].shown(loss),
        f"{group.times}time per epoch": DASH if seconds is None else duration(seconds),
        "cost of a run": DASH if cost is None else dollars(cost),
        "stale rows": _stale(variant),
        "best, points": conclusions.points_text(differences.get("best")),
        f"last {LAST}, points": conclusions.points_text(differences.get("last")),
    }


def _score(variant: Variant, mask: Any, group: Group) -> str:
    return spread([score_in(run.summary, mask) for run in variant.runs], group.metric)


def _stale(variant: Variant) -> str:
    counters = [(run.summary.get("pipeline") or {}).get("counters") or {} for run in variant.runs]
    read = sum(one.get("rows_read", 0) for one in counters)
    return f"{100 * sum(one.get('stale_rows', 0) for one in counters) / read:.0f} %" if read else DASH


def losses_table(group: Group) -> Table | None:
    """Servers that were lost and replaced; None if there were none."""
    rows, causes = [], list[str]()
    for variant in group.variants:
        for run in variant.runs:
            for loss in (run.summary.get("pipeline") or {}).get("losses") or ():
                servers = f"{variant.name}, seed {run.run.config.train.seed}: {', '.join(loss['servers'])}"
                again = duration(loss["wasted_seconds"]) if loss["repeats"] else DASH
                recovered = duration(loss["recovery_seconds"])
                rows.append(
                    {"servers": servers, "epoch": str(loss["epoch"]), "run again": again, "recovered in": recovered}
                )
                causes += loss["causes"]
    if not rows:
        return None
    listed = "; ".join(dict.fromkeys(causes[:_CAUSES]))
    more = f"; and {len(causes) - _CAUSES} more" if len(causes) > _CAUSES else ""
    note = f"Lost servers were replaced. Epoch: the first one trained afterwards. Causes: {listed}{more}."
    return Table.of("Losses", rows, note)


def settings_table(title: str, settings: Sequence[tuple[str, Mapping[str, Any]]], first: str) -> Table | None:
    """The keys in which named configurations differ, with names under `first`; None if they do not differ."""
    frame = pandas.DataFrame([{key: plain(value) for key, value in one.items()} for _, one in settings]).fillna(DASH)
    frame = frame.loc[:, frame.nunique() > 1]
    if frame.empty:
        return None
    frame.insert(0, first, [name for name, _ in settings])
    return Table(title, frame)
