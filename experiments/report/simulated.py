"""The section of a report for simulated runs: what they take and cost, relative to a baseline and beside published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import times
from dorylax.experiments.measures import COMPARED, MEASURES, RATIO
from dorylax.experiments.report import published, theme
from dorylax.experiments.report.figures import NARROW, NamedFigure, folded_names
from dorylax.experiments.report.page import Section
from dorylax.experiments.report.tables import NONE, TextTable
from dorylax.experiments.simulated_analysis import SimulatedGroup, SimulatedVariant

_LOG = 20.0
"""Axes whose numbers differ by more than this factor are logarithmic."""


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
        figures.append(_figure(f"{prefix}ratios", f"Relative to {base.name}", panels, group))
    absolute = [_panel(name, group) for name in group.published if name in MEASURES]
    if absolute and any(one.runs for one in group.variants):
        figures.append(_figure(f"{prefix}published", f"Beside {group.source}", absolute, group))
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
            row.append("1" if variant.is_baseline else NONE if ratio is None else times(ratio, len(variant.runs)))
            if name + RATIO in group.published:
                row.append(NONE if theirs is None else f"{theirs:.2f}×")
        rows.append(row)
    note = "Ratios of means over seeds, paired by seed, with bootstrap 95 % intervals where there are several."
    return TextTable(columns, rows, note + _source(group))


def _source(group: SimulatedGroup) -> str:
    return published.note(group.source) if group.published and group.source is not None else ""


class _Point(NamedTuple):
    """What is drawn of a variant: its place in the group, ours with its interval, and what was published."""

    place: int
    ours: tuple[float, float, float] | None
    published: float | None


class _Panel(NamedTuple):
    """One pair of axes; `unit` is where a line stands, None: nowhere."""

    title: str
    points: Sequence[_Point]
    unit: float | None


def _ratio_panel(name: str, group: SimulatedGroup) -> _Panel:
    def point(place: int, one: SimulatedVariant) -> _Point:
        ratio = one.ratios.get(name)
        ours = None if ratio is None else (ratio.estimate, ratio.low, ratio.high)
        return _Point(place, (1.0, 1.0, 1.0) if one.is_baseline else ours, one.published.get(name + RATIO))

    return _Panel(f"{MEASURES[name].title}, ×", [point(*entry) for entry in enumerate(group.variants)], 1.0)


def _panel(name: str, group: SimulatedGroup) -> _Panel:
    units = {"seconds": ", s", "dollars": ", US dollars"}
    unit = next((text for what, text in units.items() if what in name), "")
    points = [
        _Point(place, None if (mean := one.mean(name)) is None else (mean, mean, mean), one.published.get(name))
        for place, one in enumerate(group.variants)
    ]
    return _Panel(MEASURES[name].title + unit, points, None)


def _figure(name: str, title: str, panels: Sequence[_Panel], group: SimulatedGroup) -> NamedFigure:
    def draw(width: float) -> Figure:
        side_by_side = width >= NARROW
        names, lines = folded_names([one.name for one in group.variants], width)
        shape = (1, len(panels)) if side_by_side else (len(panels), 1)
        height = max(0.38, 0.19 * lines) * len(names) + 0.75
        figure = Figure((width, height if side_by_side else height * len(panels)), layout="constrained")
        all_axes = np.ravel(np.asarray(figure.subplots(*shape, squeeze=False)))
        for place, (axes, panel) in enumerate(zip(all_axes, panels, strict=True)):
            _draw(axes, panel)
            axes.set_yticks(range(len(names)), names if not (side_by_side and place) else [""] * len(names))
        if group.published and group.source is not None:
            published.legend(figure, all_axes[0], "simulated", group.source, width)
        return figure

    text = f"{title}: " + "; ".join(_words(panel, group) for panel in panels)
    return NamedFigure(name, title, text, draw)


def _words(panel: _Panel, group: SimulatedGroup) -> str:
    found = [f"{group.variants[one.place].name} {one.ours[0]:.3g}" for one in panel.points if one.ours is not None]
    return f"{panel.title}: {', '.join(found)}"


def _draw(axes: Axes, panel: _Panel) -> None:
    if panel.unit is not None:
        axes.axvline(panel.unit, color=theme.MUTED.light, linewidth=1)
    numbers: list[float] = []
    for row, (place, ours, theirs) in enumerate(panel.points):
        colour = theme.series(place)
        if ours is not None:
            estimate, low, high = ours
            axes.plot([low, high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt")
            axes.plot(estimate, row, "o", color=colour, markersize=6)
            label = f"{estimate:.3g}"
            axes.annotate(label, (estimate, row), (0, 6), textcoords="offset points", ha="center", fontsize=8.5)
            numbers += ours
        if theirs is not None:
            published.draw_point(axes, theirs, row, colour)
            numbers.append(theirs)
    positive = [number for number in numbers if number > 0]
    if len(positive) == len(numbers) and positive and max(positive) > _LOG * min(positive):
        axes.set_xscale("log")
    axes.set_ylim(len(panel.points) - 0.4, -0.75)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    axes.tick_params(axis="y", length=0)
    axes.set_title(panel.title)
