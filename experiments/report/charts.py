"""Charts that several figures share: accuracy curves, forests of estimates, and stacked bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import pandas  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import AT_LEAST, AT_MOST, Group, RunHistory, Variant
from dorylax.experiments.report.figures import (
    NARROW,
    NamedFigure,
    folded_names,
    folded_title,
    legend,
    legend_below,
    logarithmic,
    named_rows,
    one_axes,
)
from dorylax.experiments.seed_statistics import FEW, Interval, band
from dorylax.figure_style import INK, MUTED, SERIES, series

_LOG = 20.0  # numbers that differ by more than this factor have a logarithmic axis
_REACH = 6.0  # how much farther than estimates axes reach for the ends of rough intervals
_BELOW = 0.24  # rows by which a published point lies below ours


# Accuracy against time, epochs or dollars.


def accuracy_figure(group: Group, against: str, name: str, ratio: float = 0.5) -> NamedFigure | None:
    """Validation accuracy against `epochs`, `time` or `cost`, with the target and bands over the seeds.

    None if the metric is no fraction, nothing is done, or a run has no cost.
    """
    runs = [run for variant in group.variants for run in variant.runs]
    if not group.metric.fraction or not runs or group.simulated:
        return None
    if against == "cost" and any(record.dollars is None for run in runs for record in run.evaluated):
        return None
    virtual = all(run.run.virtual for run in runs)
    axis = {"epochs": "epochs", "time": "seconds", "cost": "US dollars"}[against]
    axis = f"simulated {axis}" if virtual and against != "epochs" else axis
    curves = {variant.name: _curve(variant, against) for variant in group.variants}
    around = _around(group)

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, ratio if width >= NARROW else 0.72)
        for place, (title, curve) in enumerate(curves.items()):
            # Colors repeat; lines of the second round are dashed.
            style: dict[str, Any] = {"color": series(place), "linestyle": ("-", "--", ":")[place // len(SERIES) % 3]}
            label = title if len(curve) else f"{title} (none done)"
            axes.plot(curve["x"], curve["mean"], label=label, **style)
            axes.fill_between(curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.18, linewidth=0)
        if group.target is not None:
            target = f"target, {100 * group.target:.1f} %"
            axes.axhline(100 * group.target, color=MUTED.light, linewidth=1, linestyle=(0, (4, 3)), label=target)
        if around:
            axes.fill_between([], [], [], color=MUTED.light, alpha=0.25, linewidth=0, label=around)
        axes.set_xlabel(axis)
        axes.set_ylabel(f"validation {group.metric.title}, %")
        axes.set_xlim(left=0)
        axes.set_ylim(*_span(runs))
        legend(figure, axes, width)
        return figure

    title = f"{group.metric.title[0].upper()}{group.metric.title[1:]} against {against}"
    text = f"{title}: mean over seeds of {', '.join(curves)}" + (f"; {around}" if around else "") + "."
    data = pandas.concat([curve.assign(variant=title) for title, curve in curves.items()], ignore_index=True)
    columns = {"x": axis, "mean": "mean_percent", "low": "low_percent", "high": "high_percent"}
    return NamedFigure(f"{name}accuracy-{against}", title, text.replace("\n", " "), draw, data.rename(columns=columns))


def _curve(variant: Variant, against: str) -> pandas.DataFrame:
    """Mean over the seeds, as long as all of them run, with its band."""
    curves = []
    for run in variant.runs:
        seconds, records = np.cumsum([record.seconds for record in run.history]), run.evaluated
        of = {
            "epochs": [float(one.epoch + 1) for one in records],
            "time": [float(seconds[one.epoch]) for one in records],
            "cost": [float(one.dollars or 0.0) for one in records],
        }
        if records:
            curves.append((of[against], [100 * score for score in run.scores]))
    if not curves:
        return pandas.DataFrame({name: [] for name in ("x", "mean", "low", "high")}, dtype=float)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.asarray(curves[0][0]) if all(x == curves[0][0] for x, _ in curves) else np.linspace(first, last, 120)
    values = np.asarray([np.interp(grid, x, y) for x, y in curves])
    low, high = band(values)
    return pandas.DataFrame({"x": grid, "mean": values.mean(axis=0), "low": low, "high": high})


def _around(group: Group) -> str:
    """Legend of the bands; empty without any."""
    seeds = sorted({len(variant.runs) for variant in group.variants if len(variant.runs) > 1})
    if not seeds:
        return ""
    number = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    if seeds[-1] < FEW:
        return f"band: range of {number} seeds"
    few = "" if seeds[0] >= FEW else f"\n(of fewer than {FEW}: their range)"
    return f"band: 95 % interval of\nthe mean of {number} seeds{few}"


def _span(runs: Sequence[RunHistory]) -> tuple[float, float]:
    """Limits of the axis, from where the curves have left their beginning."""
    values = [100 * score for run in runs for score in run.scores]
    if not values:
        return 0.0, 100.0
    low, high = np.percentile(values, 15), max(values)
    room = max(0.5, 0.06 * (high - low))
    return max(0.0, float(low) - room), min(100.0, high + room)


# Estimates with intervals.


@final
class Mark(NamedTuple):
    """A row of a panel.

    Attributes:
        color: Of the estimate.
        estimate: With its interval; None for an empty row.
        sign: `AT_LEAST` or `AT_MOST` for a bound.
        published: A published value.
        bold: Whether the row summarizes the others.
    """

    color: str
    estimate: Interval | None
    sign: str = ""
    published: float | None = None
    bold: bool = False


@final
class Panel(NamedTuple):
    """One pair of axes: a title, a mark for each row, and the value that stands for no difference."""

    title: str
    marks: Sequence[Mark]
    unit: float | None = 1.0


def forest(
    name: str,
    title: str,
    panels: Sequence[Panel],
    rows: Sequence[str],
    *,
    columns: int = 3,
    source: str | None = None,
) -> NamedFigure | None:
    """Estimates with their intervals, and published values: a row each, in panels side by side.

    None if no panel has an estimate or a published value.
    """
    panels = [one for one in panels if any(mark.estimate or mark.published is not None for mark in one.marks)]
    if not panels:
        return None
    lines = _interval_line(mark.estimate.seeds for panel in panels for mark in panel.marks if mark.estimate)

    def draw(width: float) -> Figure:
        folded, name_lines = folded_names(rows, width)
        across = min(columns, len(panels)) if width >= NARROW else 1
        down = -(-len(panels) // across)
        titles = [folded_title(panel.title, width / across, 0.57) for panel in panels]
        height = max(0.32, 0.17 * name_lines) * len(rows) + 0.5 + 0.18 * max(one.count("\n") + 1 for one in titles)
        figure = Figure((width, height * down), layout="constrained")
        grid = list(np.ravel(np.asarray(figure.subplots(down, across, squeeze=False))))
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            _draw(axes, panel, folded if place % across == 0 else [""] * len(rows))
            axes.set_title(titles[place])
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        entries = (
            []
            if source is None
            else [
                grid[0].plot([], [], "o", color=INK.light, markersize=6, label="ours")[0],
                grid[0].plot(
                    [], [], "D", color=INK.light, markersize=5, fillstyle="none", label=f"published: {source}"
                )[0],
            ]
        )
        if lines:
            entries.append(grid[0].plot([], [], color=INK.light, linewidth=2.4, label=lines)[0])
        if entries:
            legend_below(figure, entries, [str(entry.get_label()) for entry in entries], width)
        return figure

    data = pandas.DataFrame(
        [
            {
                "panel": panel.title,
                "row": row,
                "bound": mark.sign.strip(),
                **{part: getattr(mark.estimate, part, None) for part in ("estimate", "low", "high", "seeds")},
                "published": mark.published,
            }
            for panel in panels
            for row, mark in zip(rows, panel.marks, strict=True)
        ]
    )
    known = data[data["estimate"].notna()]
    told = [
        f"{panel}: " + ", ".join(f"{row} {sign}{value:.3g}" for row, sign, value in part.itertuples(index=False))
        for panel, part in known.set_index("panel")[["row", "bound", "estimate"]].groupby("panel", sort=False)
    ]
    return NamedFigure(name, title, f"{title}. " + "; ".join(told), draw, data)


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    if panel.unit is not None:
        axes.axvline(panel.unit, color=MUTED.light, linewidth=1)
    points: list[float] = []
    ends: list[float] = []
    for row, mark in enumerate(panel.marks):
        if mark.published is not None:
            axes.plot(mark.published, row + _BELOW, "D", color=mark.color, markersize=5, fillstyle="none")
            points.append(mark.published)
        if (found := mark.estimate) is None:
            continue
        points.append(found.estimate)
        if found.exists:
            axes.plot([found.low, found.high], [row, row], color=mark.color, linewidth=2.4, solid_capstyle="butt")
            ends += [found.low, found.high]
        # A bound points to where the true value is.
        shape = {"": "D" if mark.bold else "o", AT_LEAST: ">", AT_MOST: "<"}[mark.sign]
        fill = "none" if mark.sign else "full"
        axes.plot(found.estimate, row, shape, color=mark.color, markersize=7 if mark.bold else 6, fillstyle=fill)
    labels = ["–" if mark.estimate is None else f"{mark.sign}{mark.estimate.estimate:.3g}" for mark in panel.marks]
    named_rows(axes, names, labels)
    numbers = [*points, *([] if panel.unit is None else [panel.unit])]
    if min(points, default=0.0) > 0 and max(points) > _LOG * min(points):
        logarithmic(axes, "x")
        axes.margins(x=0.14)
    elif numbers:
        spread = max(max(numbers) - min(numbers), 0.05 * max(map(abs, numbers)), 1e-9)
        low = max(min([*numbers, *ends]), min(numbers) - _REACH * spread)
        high = min(max([*numbers, *ends]), max(numbers) + _REACH * spread)
        room = max(0.08 * (high - low), 0.02 * max(map(abs, numbers)), 1e-9)
        axes.set_xlim(low - room, high + room)


def _interval_line(seeds: Iterable[int]) -> str:
    """Legend of the lines; empty without any."""
    counted = sorted({number for number in seeds if number > 1})
    if not counted:
        return ""
    number = str(counted[0]) if len(counted) == 1 else f"{counted[0]} to {counted[-1]}"
    return f"95 % interval, {number} seeds" + (", rough (Student's t)" if counted[0] < FEW else " (bootstrap)")


# Stacked bars.


def stacked_bars(
    name: str,
    title: str,
    bars: Mapping[str, Mapping[str, float]],
    axis: str,
    *,
    colors: Mapping[str, str],
    labels: Sequence[str] | None = None,
    text: str = "",
) -> NamedFigure:
    """A horizontal bar for each name, split into parts.

    Args:
        name: For the files.
        title: Heading.
        bars: Name of the bar → name of the part → value.
        axis: Title of the axis.
        colors: Name of the part → color, in the order of the parts.
        labels: Text to the right of each bar.
        text: Description before the numbers.
    """

    def draw(width: float) -> Figure:
        names, lines = folded_names(list(bars), width)
        figure = Figure((width, max(0.34, 0.17 * lines) * len(bars) + 1.0), layout="constrained")
        axes = figure.subplots()
        left = np.zeros(len(bars))
        for part, color in colors.items():
            values = np.asarray([bar.get(part, 0.0) for bar in bars.values()])
            axes.barh(range(len(bars)), values, left=left, color=color, height=0.62, label=part)
            left += values
        named_rows(axes, names, labels)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(axis)
        legend_below(figure, *axes.get_legend_handles_labels(), width)
        return figure

    told = [f"{bar}: " + ", ".join(f"{part} {value:.3g}" for part, value in of.items()) for bar, of in bars.items()]
    rows = [{"bar": bar, "part": part, "value": value} for bar, of in bars.items() for part, value in of.items()]
    return NamedFigure(name, title, f"{text or title + '.'} " + "; ".join(told), draw, pandas.DataFrame(rows))
