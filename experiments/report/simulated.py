"""The section of a report for simulated runs: what they take and cost, relative to a baseline and beside published ones."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from dorylax.experiments.measures import COMPARED, MEASURES, RATIO
from dorylax.experiments.report import published, theme
from dorylax.experiments.report.figures import NamedFigure
from dorylax.experiments.report.forest import Mark, Panel, forest, interval_line
from dorylax.experiments.report.page import Section
from dorylax.experiments.report.tables import NONE, TextTable
from dorylax.experiments.seed_statistics import FEW, Interval
from dorylax.experiments.sentences import times
from dorylax.experiments.simulated_analysis import SimulatedGroup, SimulatedVariant


def simulated_section(title: str, group: SimulatedGroup, prefix: str, asked: str = "") -> Section:
    """What a group has come to.

    Args:
        title: of the section.
        group: of simulated runs.
        prefix: of the names of its figures.
        asked: what a part of a sweep is for; may be empty.
    """
    tables = [("What runs take and cost", _results(group))]
    figures: list[NamedFigure] = []
    base = group.baseline
    if base is not None and any(one.ratios for one in group.variants):
        tables.insert(0, (f"Relative to {base.name}", _relative(group)))
        time = "seconds" if f"seconds{RATIO}" in group.published else "epoch_seconds"
        panels = [_ratio_panel(name, group) for name in (time, "dollars", "value")]
        lines = interval_line(ratio.seeds for one in group.variants for ratio in one.ratios.values())
        figures.append(_figure(f"{prefix}ratios", f"Relative to {base.name}", panels, group, lines))
    absolute = [_panel(name, group) for name in group.published if name in MEASURES]
    if absolute and any(one.runs for one in group.variants):
        figures.append(_figure(f"{prefix}published", f"Beside {group.source}", absolute, group, ""))
    return Section(title, [*[asked] * bool(asked), *group.sentences], tables, figures)


def _results(group: SimulatedGroup) -> TextTable:
    columns = ["variant", "runs"]
    for name, measure in MEASURES.items():
        columns += [measure.title, *[published.TITLE] * (name in group.published)]
    rows = []
    for variant in group.variants:
        row = [variant.name, str(len(variant.runs))]
        if len(variant.runs) != variant.planned:
            row[1] += f" of {variant.planned}"
        for name, measure in MEASURES.items():
            mean, theirs = variant.mean(name), variant.published.get(name)
            row.append(NONE if mean is None else measure.shown(mean))
            if name in group.published:
                row.append(NONE if theirs is None else measure.shown(theirs))
        rows.append(row)
    note = (
        "Simulated: nothing was trained. Means over seeds. An epoch: one that is not the first. Cost: functions, graph "
        "servers and parameter servers, of the whole run. Value: 1/(time · cost) of it, per second and US dollar."
    )
    return TextTable(columns, rows, note + _source(group))


def _relative(group: SimulatedGroup) -> TextTable:
    columns = ["variant"]
    for name in COMPARED:
        columns += [f"{MEASURES[name].title}, ×", *[published.TITLE] * (name + RATIO in group.published)]
    rows = []
    for variant in group.variants:
        row = [variant.name + (" (baseline)" if variant.is_baseline else "")]
        for name in COMPARED:
            ratio, theirs = variant.ratios.get(name), variant.published.get(name + RATIO)
            row.append("1" if variant.is_baseline else NONE if ratio is None else times(ratio))
            if name + RATIO in group.published:
                row.append(NONE if theirs is None else f"{theirs:.2f}×")
        rows.append(row)
    few = min((ratio.seeds for one in group.variants for ratio in one.ratios.values()), default=1)
    note = "Ratios of means over seeds, paired by seed; "
    if few < 2:
        note += "of one seed there are no intervals."
    else:
        note += f"95 % intervals, {'bootstrap' if few >= FEW else f'Student’s t and rough: of {few} seeds'}."
    return TextTable(columns, rows, note + _source(group))


def _source(group: SimulatedGroup) -> str:
    return published.note(group.source) if group.published and group.source is not None else ""


def _ratio_panel(name: str, group: SimulatedGroup) -> Panel:
    def mark(place: int, one: SimulatedVariant) -> Mark:
        ratio = Interval(1.0, 1.0, 1.0, 1) if one.is_baseline else one.ratios.get(name)
        return Mark(theme.series(place), ratio, published=one.published.get(name + RATIO))

    return Panel(f"{MEASURES[name].title}, ×", [mark(*entry) for entry in enumerate(group.variants)])


def _panel(name: str, group: SimulatedGroup) -> Panel:
    units = {"seconds": ", s", "dollars": ", US dollars"}
    unit = next((text for what, text in units.items() if what in name), "")
    marks = [
        Mark(
            theme.series(place),
            None if (mean := one.mean(name)) is None else Interval(mean, mean, mean, 1),
            published=one.published.get(name),
        )
        for place, one in enumerate(group.variants)
    ]
    return Panel(MEASURES[name].title + unit, marks, None)


def _figure(name: str, title: str, panels: Sequence[Panel], group: SimulatedGroup, lines: str) -> NamedFigure:
    def draw(width: float) -> Figure:
        source = group.source if group.published else None
        return forest(panels, [one.name for one in group.variants], width, lines, ours="simulated", source=source)

    text = f"{title}: " + "; ".join(_words(panel, group) for panel in panels)
    return NamedFigure(name, title, text, draw)


def _words(panel: Panel, group: SimulatedGroup) -> str:
    found = [
        f"{variant.name} {mark.estimate.estimate:.3g}"
        for variant, mark in zip(group.variants, panel.marks, strict=True)
        if mark.estimate is not None
    ]
    return f"{panel.title}: {', '.join(found)}"
