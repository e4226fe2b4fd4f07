"""Forests: rows of estimates with their intervals, in panels side by side or one below the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import AT_LEAST
from dorylax.experiments.report import published, theme
from dorylax.experiments.report.figures import NARROW, folded_names, folded_title, legend_below, row_labels
from dorylax.experiments.seed_statistics import FEW, Interval

_LOG = 20.0
"""Axes whose numbers differ by more than this factor are logarithmic."""

_TITLE = 0.57
"""The share of a panel's width that its title has."""

_REACH = 6.0
"""How much farther than estimates, from what they are relative to, axes reach for the ends of intervals."""


@final
class Mark(NamedTuple):
    """A row of a panel.

    Attributes:
        colour: of what is drawn.
        estimate: with its interval; None: there is nothing.
        sign: what stands before it where it is a bound.
        published: what others have found.
        bold: whether it stands for all other rows.
    """

    colour: str
    estimate: Interval | None
    sign: str = ""
    published: float | None = None
    bold: bool = False


@final
class Panel(NamedTuple):
    """One pair of axes: a title, a mark for each row, and where estimates say that there is no difference."""

    title: str
    marks: Sequence[Mark]
    unit: float | None = 1.0


def forest(
    panels: Sequence[Panel],
    names: Sequence[str],
    width: float,
    lines: str,
    *,
    columns: int | None = None,
    ours: str = "",
    source: str | None = None,
) -> Figure:
    """The figure.

    Args:
        panels: with a mark for each name.
        names: of the rows.
        width: inches.
        lines: what they are, for the legend; empty where there are none.
        columns: panels side by side where there is room; None: all.
        ours: what points are.
        source: who has published others; None: nobody.
    """
    folded, name_lines = folded_names(names, width)
    across = min(columns or len(panels), len(panels)) if width >= NARROW else 1
    down = -(-len(panels) // across)
    titles = [folded_title(panel.title, width / across, _TITLE) for panel in panels]
    title_lines = max(title.count("\n") + 1 for title in titles)
    height = max(0.32, 0.17 * name_lines) * len(names) + 0.5 + 0.18 * title_lines
    figure = Figure((width, height * down), layout="constrained")
    grid = list(np.ravel(np.asarray(figure.subplots(down, across, squeeze=False))))
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        _draw(axes, panel)
        axes.set_yticks(range(len(names)), folded if place % across == 0 else [""] * len(names))
        axes.set_title(titles[place])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    entries = [] if source is None else [published.circle(grid[0], ours), published.diamond(grid[0], source)]
    if lines:
        entries.append(grid[0].plot([], [], color=theme.INK.light, linewidth=2.4, label=lines)[0])
    if entries:
        legend_below(figure, entries, [str(entry.get_label()) for entry in entries], width)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    if panel.unit is not None:
        axes.axvline(panel.unit, color=theme.MUTED.light, linewidth=1)
    points: list[float] = []
    ends: list[float] = []
    labels = []
    for row, mark in enumerate(panel.marks):
        if mark.published is not None:
            published.draw_point(axes, mark.published, row, mark.colour)
            points.append(mark.published)
        found = mark.estimate
        labels.append("–" if found is None else f"{mark.sign}{found.estimate:.3g}")
        if found is None:
            continue
        points.append(found.estimate)
        if found.exists:
            axes.plot([found.low, found.high], [row, row], color=mark.colour, linewidth=2.4, solid_capstyle="butt")
            ends += [found.low, found.high]
        # A bound points to where the true value is.
        shape = {"": "D" if mark.bold else "o", AT_LEAST: ">"}.get(mark.sign, "<")
        fill = "none" if mark.sign else "full"
        axes.plot(found.estimate, row, shape, color=mark.colour, markersize=7 if mark.bold else 6, fillstyle=fill)
    row_labels(axes, labels)
    _scale(axes, points, ends, panel.unit)
    axes.set_ylim(len(panel.marks) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _scale(axes: Axes, points: Sequence[float], ends: Sequence[float], unit: float | None) -> None:
    """So that estimates can be told apart, however far rough intervals reach."""
    numbers = [*points, *([] if unit is None else [unit])]
    if not numbers:
        return
    if min(points, default=0.0) > 0 and max(points) > _LOG * min(points):
        axes.set_xscale("log")
        axes.margins(x=0.14)
        return
    spread = max(max(numbers) - min(numbers), 0.05 * max(map(abs, numbers)), 1e-9)
    low = max(min([*numbers, *ends]), min(numbers) - _REACH * spread)
    high = min(max([*numbers, *ends]), max(numbers) + _REACH * spread)
    room = max(0.08 * (high - low), 0.02 * max(map(abs, numbers)), 1e-9)
    axes.set_xlim(low - room, high + room)


def interval_line(seeds: Iterable[int]) -> str:
    """What the lines are, in words for the figure; empty where there are none."""
    counted = sorted(set(seeds))
    few = counted[0] if counted else 0
    number = str(few) if len(counted) == 1 else f"{few} to {counted[-1]}"
    if few < 2:
        return f"95 % interval, {number} seeds (of one there is none)" if counted[1:] else ""
    return f"95 % interval, {number} seeds" + (", rough (Student's t)" if few < FEW else " (bootstrap)")
