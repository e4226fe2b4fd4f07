"""The tables of a report as rows of text, for HTML and Markdown alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dorylax.experiments.analysis import AT_LEAST, AT_MOST, LAST, SAME_ACCURACY, Compared, Group, Variant, as_accurate
from dorylax.experiments.measures import TO_TARGET, TO_TARGET_RATIO
from dorylax.experiments.names import metric_of
from dorylax.experiments.pooling import Pool
from dorylax.experiments.report import published
from dorylax.experiments.seed_statistics import FEW, Interval, median
from dorylax.experiments.sentences import points, times
from dorylax.experiments.table import spread
from dorylax.observers.progress import dollars, duration
from dorylax.runs.metric import MetricKind, score_in
from dorylax.settings.errors import shown as shown_value

NONE = "–"
TURNED = {"": "", AT_LEAST: AT_MOST, AT_MOST: AT_LEAST}
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
    gated = any((run.summary.get("pipeline") or {}).get("epochs_ahead") is not None for run in runs)
    if gated:
        columns.append("ran ahead in")
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
        if gated:
            row.append(_ahead(variant))
        rows.append(row)
    return TextTable(columns, rows, "")


def _stale(variant: Variant) -> str:
    read = behind = 0
    for run in variant.runs:
        counters = (run.summary.get("pipeline") or {}).get("counters") or {}
        read += int(counters.get("rows_read", 0))
        behind += int(counters.get("stale_rows", 0))
    return f"{100 * behind / read:.0f} %" if read else NONE


def _ahead(variant: Variant) -> str:
    """Epochs in which the stability gate was open, of all runs of a variant."""
    summaries = [run.summary for run in variant.runs]
    ahead = [(one.get("pipeline") or {}).get("epochs_ahead") for one in summaries]
    if None in ahead:
        return NONE
    return f"{sum(ahead)} of {sum(one['epochs'] for one in summaries)} epochs"


def comparison_table(group: Group) -> TextTable | None:
    """What it took to the target, beside the baseline; None where nothing is compared, or nothing reaches the target."""
    found = _compared(group)
    if group.target is None or not any(one.judged or one.reached for _, one in found):
        return None
    priced = any(one.dollars is not None for _, one in found) or "dollars" in group.published
    shown = [name for name in TO_TARGET if name != "dollars" or priced]
    columns = ["variant", "reach it"]
    for name in shown:
        columns += [f"{TITLES[name]} to target", *[published.TITLE] * (name in group.published)]
    columns += ["value"] if priced else []
    rows = [_comparison_row(variant, one, shown, group) for variant, one in found]
    others = [one for variant, one in found if not variant.is_baseline]
    note = (
        f"Target: {100 * group.target:.2f} % validation {group.metric.title}, judged on the mean of three evaluations. "
        "Reach it: of the runs whose seed the baseline has, too. Epochs, time and cost: means over the runs that reach it. "
        "×: relative to the baseline, ratios of means over seeds, paired by seed; "
        f"{_intervals(one.judged for one in others)}. "
    )
    signs = {one.sign for _, one in found}
    if AT_LEAST in signs:
        note += "≥: runs that never came there count with all they did, so the true ratio is larger. "
    if AT_MOST in signs:
        note += "≤: runs of the baseline never came there. "
    if any(one.reached < one.seeds or one.baseline_reached < one.seeds for _, one in found):
        note += (
            "Where a bound would say nothing no ratio is given, and seeds on which neither came there do not count. "
        )
    if priced:
        note += "Value: 1/(time · dollars), relative."
    if group.published and group.source is not None:
        note += published.note(group.source)
    return TextTable(columns, rows, note.rstrip())


def _compared(group: Group) -> list[tuple[Variant, Compared]]:
    return [(variant, variant.compared) for variant in group.variants if variant.compared is not None]


def _intervals(seeds: Iterable[int]) -> str:
    """What the intervals of a table are, by the seeds that they rest on."""
    few = min((number for number in seeds if number > 1), default=1)
    if few == 1:
        return "of one seed there are no intervals"
    kind = "bootstrap" if few >= FEW else f"by Student's t, and rough: of {few} seeds"
    return f"95 % intervals, {kind}"


def _comparison_row(variant: Variant, found: Compared, shown: Sequence[str], group: Group) -> list[str]:
    absolute = {
        "epochs": None if found.epochs is None else f"{found.epochs:.1f}",
        "seconds": None if found.seconds is None else duration(found.seconds),
        "dollars": None if found.dollars is None else dollars(found.dollars),
    }
    ratios = {"epochs": found.epochs_ratio, "seconds": found.seconds_ratio, "dollars": found.dollars_ratio}
    row = [_row_name(variant), f"{found.reached} of {found.seeds}"]
    for name in shown:
        ratio = ratios[name]
        cells = [absolute[name], None if ratio is None else f"{found.sign}{times(ratio)}"]
        row.append(", ".join(cell for cell in cells if cell is not None) or NONE)
        if name in group.published:
            theirs = variant.published.get(name + TO_TARGET_RATIO)
            row.append(NONE if theirs is None else f"{theirs:.2f}×")
    if "dollars" in shown:
        value = NONE if found.value_ratio is None else f"{TURNED[found.sign]}{found.value_ratio:.2f}"
        row.append("1" if variant.is_baseline else value)
    return row


def _row_name(variant: Variant) -> str:
    return variant.name + (" (baseline)" if variant.is_baseline else "")


_POINTS = {"accuracy": "test {}", "best": "best validation", "last": f"last {LAST}"}
"""What there are differences of, and their titles, in which the metric stands."""


def accuracy_table(group: Group) -> TextTable | None:
    """How accurate each variant is beside the baseline; None where nothing is compared."""
    found = [(variant, one) for variant, one in _compared(group) if not variant.is_baseline]
    if not found or group.baseline is None:
        return None
    rows = [
        [
            variant.name,
            _verdict(one.accuracy if one.judged else None),
            *(_points(difference) for difference in (one.accuracy, one.best, one.last)),
        ]
        for variant, one in found
    ]
    note = (
        f"Differences to {group.baseline.name} in points, paired by seed; {_intervals(one.seeds for _, one in found)}. "
        f"As accurate: yes, if all of the interval of the difference of test {group.metric.title} is within "
        f"± {100 * SAME_ACCURACY:.1f} points; less or more, if it lies on one side of 0. "
        f"Last {LAST}: the mean of the validation {group.metric.title} at the end."
    )
    if any(not one.judged for _, one in found):
        note += " Of what never reaches the target, on either side, it is not judged."
    return TextTable(["variant", "as accurate", *_titles(group.metric)], rows, note)


def _titles(metric: MetricKind) -> list[str]:
    return [title.format(metric.title) for title in _POINTS.values()]


def _verdict(difference: Interval | None) -> str:
    if difference is None or not difference.exists:
        return NONE
    if as_accurate(difference):
        return "yes"
    return "more" if difference.low > 0 else "less" if difference.high < 0 else "undecided"


def _points(difference: Interval | None) -> str:
    return NONE if difference is None else points(difference).replace(" points", "")


def pooled_table(pool: Pool) -> TextTable:
    """What it took to the target on the mean over groups, beside the baseline."""
    rows = []
    for one in pool.variants:
        groups = str(one.groups) if one.compared == one.groups else f"{one.compared} of {one.groups}"
        cells = [times(one.means[what]) if what in one.means else NONE for what in TO_TARGET]
        reached = f"{one.reached} of {one.runs} (baseline: {one.baseline_reached})"
        rows.append([one.name, groups, *cells, str(one.less["seconds"]), str(one.more["seconds"]), reached])
    intervals = _intervals(mean.seeds for one in pool.variants for what in TO_TARGET if (mean := one.means.get(what)))
    note = (
        f"Ratios to the baseline, means over {len(pool.groups)} groups, of which each counts once in which both reach the "
        f"target on the same seeds; {intervals}; seeds vary within groups. Less, more time: in how many groups, as whole "
        f"intervals say. Groups: {'; '.join(pool.groups)}."
    )
    columns = ["variant", "groups", *TITLES.values(), "less time in", "more time in", "reach it"]
    return TextTable(columns, rows, note)


def pooled_accuracy_table(pool: Pool) -> TextTable:
    """How accurate variants are on the mean over groups, beside the baseline."""
    rows = []
    for one in pool.variants:
        differences = [one.means.get(what) for what in _POINTS]
        rows.append([one.name, str(one.groups), _verdict(differences[0]), *map(_points, differences)])
    intervals = _intervals(mean.seeds for one in pool.variants for what in _POINTS if (mean := one.means.get(what)))
    note = f"Differences in points, means over all groups that have the variant; {intervals}. Words as for one group."
    return TextTable(["variant", "groups", "as accurate", *_titles(pool.metric)], rows, note)


def settings_table(settings: Sequence[tuple[str, Mapping[str, Any]]], first: str) -> TextTable | None:
    """In what configurations differ; None where in nothing.

    Args:
        settings: names, and dotted configurations.
        first: the title of the first column.
    """
    keys = list(dict.fromkeys(key for _, one in settings for key in one))
    differing = [key for key in keys if len({_value(one, key) for _, one in settings}) > 1]
    if not differing:
        return None
    return TextTable(
        [first, *differing], [[name, *(_value(one, key) for key in differing)] for name, one in settings], ""
    )


def _value(setting: Mapping[str, Any], key: str) -> str:
    if key not in setting:
        return NONE
    return value if isinstance(value := setting[key], str) else shown_value(value)


def markdown(table: TextTable) -> str:
    """A table as Markdown."""
    lines = [_markdown_row(table.columns), "|" + "---|" + "---:|" * (len(table.columns) - 1)]
    lines += [_markdown_row(row) for row in table.rows]
    return "\n".join(lines) + (f"\n\n{table.note}" if table.note else "")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
