"""Shared charts: accuracy curves, forest plots of estimates, and stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from dorylax.experiments.seed_statistics import FEW, band
from dorylax.figure_style import INK, MUTED, SERIES, series

_LOG = 20.0  # minimum factor between the largest and smallest number for a logarithmic axis
_REACH = 6.0  # maximum extension of the axis to show interval ends, in spreads of the estimates
_BELOW = 0.24  # vertical offset of a published point below ours, in rows


# Accuracy against time, epochs or dollars.


def accuracy_figure(group: Group, against: str, name: str, ratio: float = 0.5) -> NamedFigure | None:
    """Plot validation accuracy against `epochs`, `time` or `cost`, with the target and bands over the seeds.

    Returns None for simulated runs, if the metric is not a fraction, no run is done, or a run lacks the cost.
    """
    runs = [run for variant in group.variants for run in variant.runs]
    if not group.metric.fraction or not runs or group.simulated:
        return None
    if against == "cost" and any(record.dollars is None for run in runs for record in run.evaluated):
        return None
    axis = {"epochs": "epochs", "time": f"{group.times}seconds", "cost": f"{group.times}US dollars"}[against]
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
        axes.set(xlabel=axis, ylabel=f"validation {group.metric.title}, %", ylim=_span(runs))
        axes.set_xlim(left=0)
        legend(figure, axes, width)
        return figure

    title = f"{group.metric.title[0].upper()}{group.metric.title[1:]} against {against}"
    text = f"{title}: mean over seeds of {', '.join(curves)}" + (f"; {around}" if around else "") + "."
    data = pandas.concat([curve.assign(variant=title) for title, curve in curves.items()], ignore_index=True)
    columns = {"x": axis, "mean": "mean_percent", "low": "low_percent", "high": "high_percent"}
    return NamedFigure(f"{name}accuracy-{against}", title, text.replace("\n", " "), draw, data.rename(columns=columns))


def _curve(variant: Variant, against: str) -> pandas.DataFrame:
    """Compute the mean over the seeds and its band, over the range common to all seeds."""
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
    """Return the legend of the bands; empty without bands."""
    seeds = sorted({len(variant.runs) for variant in group.variants if len(variant.runs) > 1})
    if not seeds:
        return ""
    if seeds[-1] < FEW:
        return f"band: range of {_counts(seeds)} seeds"
    few = "" if seeds[0] >= FEW else f"\n(of fewer than {FEW}: their range)"
    return f"band: 95 % interval of\nthe mean of {_counts(seeds)} seeds{few}"


def _counts(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _span(runs: Sequence[RunHistory]) -> tuple[float, float]:
    """Return the limits of the accuracy axis, which cut off the start of the curves."""
    values = [100 * score for run in runs for score in run.scores]
    if not values:
        return 0.0, 100.0
    low, high = np.percentile(values, 15), max(values)
    room = max(0.5, 0.06 * (high - low))
    return max(0.0, float(low) - room), min(100.0, high + room)


# Estimates with intervals.


class Mark(NamedTuple):
    """A row of a forest plot; unknown numbers are NaN.

    Attributes:
        panel: Title of the row's panel.
        row: Name of the row.
        color: Color; empty for a summary of the others.
        published: Published value.
        estimate: Our value, with the ends `low` and `high` of its interval.
        seeds: Number of seeds.
        bound: `AT_LEAST` or `AT_MOST` if the estimate is a bound, else empty.
    """

    panel: str
    row: str
    color: str = ""
    published: float = np.nan
    estimate: float = np.nan
    low: float = np.nan
    high: float = np.nan
    seeds: float = np.nan
    bound: str = ""


def forest(
    name: str, title: str, rows: Sequence[Mark], unit: float = 1.0, source: str | None = None
) -> NamedFigure | None:
    """Draw a forest plot: one row per estimate, with its interval and published value, in panels side by side.

    Returns None if no panel has an estimate or a published value.

    Args:
        name: Base name of the figure's files.
        title: Heading.
        rows: Marks, in order.
        unit: Value that means no difference.
        source: Source of the published values, or None.
    """
    if not rows:
        return None
    data = pandas.DataFrame(rows)
    known = data["estimate"].notna() | data["published"].notna()
    if not known.any():
        return None
    data = data[known.groupby(data["panel"]).transform("any")]
    panels, names = dict(list(data.groupby("panel", sort=False))), list(dict.fromkeys(data["row"]))
    seeds = sorted({int(number) for number in data["seeds"].dropna() if number > 1})
    lines = f"95 % interval, {_counts(seeds)} seeds" if seeds else ""
    lines += "" if not seeds else ", rough (Student's t)" if seeds[0] < FEW else " (bootstrap)"

    def draw(width: float) -> Figure:
        folded, name_lines = folded_names(names, width)
        across = min(3, len(panels)) if width >= NARROW else 1
        down = -(-len(panels) // across)
        titles = [folded_title(panel, width / across, 0.57) for panel in panels]
        height = max(0.32, 0.17 * name_lines) * len(names) + 0.5 + 0.18 * max(one.count("\n") + 1 for one in titles)
        figure = Figure((width, height * down), layout="constrained")
        grid = list(np.ravel(np.asarray(figure.subplots(down, across, squeeze=False))))
        for place, (axes, marks) in enumerate(zip(grid, panels.values(), strict=False)):
            _draw(axes, marks, folded if place % across == 0 else [""] * len(names), unit)
            axes.set_title(titles[place])
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        styles: dict[str, dict[str, Any]] = {}
        if source is not None:
            styles["ours"] = {"marker": "o", "linestyle": "", "markersize": 6}
            styles[f"published: {source}"] = {"marker": "D", "linestyle": "", "markersize": 5, "fillstyle": "none"}
        if lines:
            styles[lines] = {"linewidth": 2.4}
        if styles:
            handles = [grid[0].plot([], [], color=INK.light, **style)[0] for style in styles.values()]
            legend_below(figure, handles, list(styles), width)
        return figure

    shown = data.assign(bound=data["bound"].str.strip(), seeds=data["seeds"].astype("Int64"))
    shown = shown[["panel", "row", "bound", "estimate", "low", "high", "seeds", "published"]]
    told = [
        f"{panel}: " + ", ".join(f"{one.row} {one.bound.strip()}{one.estimate:.3g}" for one in marks.itertuples())
        for panel, marks in data[data["estimate"].notna()].groupby("panel", sort=False)
    ]
    return NamedFigure(name, title, f"{title}. " + "; ".join(told), draw, shown)


def _draw(axes: Axes, marks: pandas.DataFrame, names: Sequence[str], unit: float) -> None:
    axes.axvline(unit, color=MUTED.light, linewidth=1)
    labels = []
    for row, mark in enumerate(marks.itertuples()):
        color, bold = mark.color or INK.light, not mark.color
        if not np.isnan(mark.published):
            axes.plot(mark.published, row + _BELOW, "D", color=color, markersize=5, fillstyle="none")
        labels.append("–" if np.isnan(mark.estimate) else f"{mark.bound}{mark.estimate:.3g}")
        if np.isnan(mark.estimate):
            continue
        if mark.seeds > 1:
            axes.plot([mark.low, mark.high], [row, row], color=color, linewidth=2.4, solid_capstyle="butt")
        # The marker of a bound points toward the true value.
        shape = {"": "D" if bold else "o", AT_LEAST: ">", AT_MOST: "<"}[mark.bound]
        fill = "none" if mark.bound else "full"
        axes.plot(mark.estimate, row, shape, color=color, markersize=7 if bold else 6, fillstyle=fill)
    named_rows(axes, names, labels)
    points = marks[["published", "estimate"]].to_numpy(float)
    points = points[~np.isnan(points)]
    if points.size and points.min() > 0 and points.max() > _LOG * points.min():
        logarithmic(axes, "x", ticks=(1.0,))
        axes.margins(x=0.14)
        return
    ends = marks.loc[marks["seeds"] > 1, ["low", "high"]].to_numpy(float)
    numbers = np.append(points, unit)
    spread = max(np.ptp(numbers), 0.05 * np.abs(numbers).max(), 1e-9)
    reach = np.append(numbers, ends)
    low = max(reach.min(), numbers.min() - _REACH * spread)
    high = min(reach.max(), numbers.max() + _REACH * spread)
    room = max(0.08 * (high - low), 0.02 * np.abs(numbers).max(), 1e-9)
    axes.set_xlim(low - room, high + room)


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
    """Draw horizontal stacked bars.

    Args:
        name: Base name of the figure's files.
        title: Heading.
        bars: Map from bar to part to value.
        axis: Title of the axis.
        colors: Map from part to color, in the order of the parts.
        labels: Text to the right of each bar, or None.
        text: Description that precedes the numbers.
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
