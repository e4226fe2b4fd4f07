"""The tables of a report as rows of text, for HTML and Markdown alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dorylax.experiments.analysis import LAST, Compared, Group, Variant, times
from dorylax.experiments.measures import TO_TARGET, TO_TARGET_RATIO
from dorylax.experiments.names import metric_of
from dorylax.experiments.pooling import Pool
from dorylax.experiments.report import published
from dorylax.experiments.seed_statistics import Interval, median
from dorylax.experiments.table import spread
from dorylax.observers.progress import dollars, duration
from dorylax.runs.metric import score_in

NONE = "–"
TURNED = {"": "", "≥ ": "≤ ", "≤ ": "≥ ", "≈ ": "≈ "}
"""The sign of what is larger where the ratio is smaller."""
TITLES = {"epochs": "epochs", "seconds": "time", "dollars": "cost"}
"""What `TO_TARGET` is called."""


class TextTable(NamedTuple):
    """A table.

    Attributes:
        columns: titles.
        rows: as many cells each; the first is text, the others are numbers.
        note: what its marks mean; may be empty.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str


def results_table(group: Group) -> TextTable:
    """What each variant has come to: accuracy, loss, time and cost of an epoch."""
    runs = [run for variant in group.variants for run in variant.runs]
    kind = metric_of(run.summary for run in runs)
    metric = kind.title
    columns = ["variant", "runs", f"test {metric}", f"validation {metric}", "final loss", "time per epoch"]
    priced = any(run.history and run.history[-1].dollars is not None for run in runs)
    stale = any((run.summary.get("pipeline") or {}).get("rows_by_lag") for run in runs)
    if priced:
        columns.append("cost of a run")
    if stale:
        columns.append("stale rows")
    rows = []
    for variant in group.variants:
        summaries = [run.summary for run in variant.runs]
        losses = [run.history[-1].loss for run in variant.runs if run.history]
        seconds = median(summary.get("seconds_per_epoch") for summary in summaries)
        row = [
            variant.name,
            str(len(variant.runs))
            if len(variant.runs) == variant.planned
            else f"{len(variant.runs)} of {variant.planned}",
            spread([score_in(s, "test") for s in summaries], kind),
            spread([score_in(s, "val") for s in summaries], kind),
            f"{statistics.fmean(losses):.4f}" if losses else NONE,
            NONE if seconds is None else duration(seconds),
        ]
        if priced:
            costs = [run.history[-1].dollars for run in variant.runs if run.history]
            known = [cost for cost in costs if cost is not None]
            row.append(dollars(statistics.fmean(known)) if known else NONE)
        if stale:
            row.append(_stale(variant))
        rows.append(row)
    return TextTable(columns, rows, "")


def _stale(variant: Variant) -> str:
    read = behind = 0
    for run in variant.runs:
        counters = (run.summary.get("pipeline") or {}).get("counters") or {}
        read += int(counters.get("rows_read", 0))
        behind += int(counters.get("stale_rows", 0))
    return f"{100 * behind / read:.0f} %" if read else NONE


def comparison_table(group: Group) -> TextTable | None:
    """What it took to the target, beside the baseline; None where nothing is compared."""
    found = [(variant, variant.compared) for variant in group.variants if variant.compared is not None]
    if group.target is None or not found:
        return None
    priced = any(one.dollars is not None for _, one in found) or "dollars" in group.published
    shown = [name for name in TO_TARGET if name != "dollars" or priced]
    columns = ["variant"]
    for name in shown:
        columns += [f"{TITLES[name]} to target", *[published.TITLE] * (name in group.published)]
    columns += ["value"] if priced else []
    columns += ["never there", "best validation", f"last {LAST}", "test accuracy", "as accurate"]
    rows = [_comparison_row(variant, one, shown, group) for variant, one in found]
    note = (
        f"Target: {100 * group.target:.2f} % validation accuracy, judged on the mean of three evaluations. "
        "×: relative to the baseline, ratios of means over seeds, paired by seed, with bootstrap 95 % intervals. "
        "≥: some runs never came there; they count with all their epochs, so the true value is larger (≤: some of the "
        "baseline's, ≈: some of both). "
        "Value: 1/(time · dollars), relative. Best validation, test accuracy: differences in points; "
        f"last {LAST}: that of the validation accuracies at the end, of which the last {LAST} are averaged. "
        "As accurate: all of the interval of the difference of test accuracies lies within ± 0.5 points."
    )
    if group.published and group.source is not None:
        note += published.note(group.source)
    return TextTable(columns, rows, note)


def _comparison_row(variant: Variant, found: Compared, shown: Sequence[str], group: Group) -> list[str]:
    least = "≥ " if found.censored else ""
    cells = {
        "epochs": f"{least}{found.epochs:.1f}{_ratio(found, found.epochs_ratio)}",
        "seconds": f"{least}{duration(found.seconds)}{_ratio(found, found.seconds_ratio)}",
        "dollars": NONE
        if found.dollars is None
        else f"{least}{dollars(found.dollars)}{_ratio(found, found.dollars_ratio)}",
    }
    row = [variant.name + (" (baseline)" if variant.is_baseline else "")]
    for name in shown:
        row.append(cells[name])
        if name in group.published:
            theirs = variant.published.get(name + TO_TARGET_RATIO)
            row.append(NONE if theirs is None else f"{theirs:.2f}×")
    if "dollars" in shown:
        value = NONE if found.value_ratio is None else f"{TURNED[found.sign]}{found.value_ratio:.2f}"
        row.append("1" if variant.is_baseline else value)
    points = [_points(one, found.seeds) for one in (found.best, found.last, found.accuracy)]
    same = {True: "yes", False: "no", None: NONE}[found.as_accurate]
    return [*row, f"{found.censored} of {found.seeds}", *points, same]


def _points(difference: Interval | None, seeds: int) -> str:
    if difference is None:
        return NONE
    low, middle, high = (100 * x for x in (difference.low, difference.estimate, difference.high))
    return f"{middle:+.1f}" + (f" ({low:+.1f} to {high:+.1f})" if seeds > 1 else "")


def pooled_table(pool: Pool) -> TextTable:
    """What it took to the target on the mean over groups, beside the baseline."""
    points = {"best": "best validation", "last": f"last {LAST}", "accuracy": "test accuracy"}
    rows = []
    for one in pool.variants:
        cells = [times(one.means[what], one.runs) if what in one.means else NONE for what in TO_TARGET]
        cells += [_points(one.means.get(what), one.runs) for what in points]
        never = f"{one.censored[0]} of {one.runs} (baseline: {one.censored[1]})"
        rows.append([one.name, str(one.groups), *cells, never])
    names = "; ".join(pool.groups)
    note = (
        f"Means over {len(pool.groups)} groups ({names}), of which each that has the variant counts once: of ratios to "
        "the baseline, and of differences in points. Intervals: bootstrap, 95 %; seeds are resampled within groups."
    )
    return TextTable(["variant", "groups", *TITLES.values(), *points.values(), "never there"], rows, note)


def _ratio(found: Compared, ratio: Interval | None) -> str:
    return "" if ratio is None else f", {found.sign}{times(ratio, found.seeds)}"


def markdown(table: TextTable) -> str:
    """A table as Markdown."""
    lines = [_markdown_row(table.columns), "|" + "---|" + "---:|" * (len(table.columns) - 1)]
    lines += [_markdown_row(row) for row in table.rows]
    return "\n".join(lines) + (f"\n\n{table.note}" if table.note else "")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
