"""Report figures: drawn by Matplotlib at any width, saved as SVG, PDF and CSV, and inlined in the page's colors.

Forest plots of estimates and stacked bars serve several figures.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from dorylax.experiments.analysis import AT_LEAST, AT_MOST
from dorylax.experiments.names import fold
from dorylax.experiments.seed_statistics import FEW
from dorylax.figure_style import ALL, INK, MUTED, styled
from dorylax.store.durable import write_file

Draw = Callable[[float], Figure]

WIDE, PHONE = 7.6, 3.7
"""Figure widths in inches for screens and phones. The font size is the same for both."""
NARROW = 5.0
"""Width in inches below which legends and panels are stacked vertically."""
_BESIDE = 26  # maximum letters per line for a legend to the right of the axes
_ROW = 0.19  # height of a legend row in inches
_LETTER, _HANDLE = 0.075, 0.55  # widths in inches of a letter, and of a legend handle with its padding
_LOG = 20.0  # minimum factor between the largest and smallest number for a logarithmic axis
_REACH = 6.0  # maximum extension of the axis to show interval ends, in spreads of the estimates
_BELOW = 0.24  # vertical offset of a published point below ours, in rows
_MARKERS = {"": "o", AT_LEAST: ">", AT_MOST: "<"}  # the marker of a bound points toward the true value


class NamedFigure(NamedTuple):
    """Figure with the base name of its files, a title, alternative text for screen readers, and the plotted numbers.

    `draw` draws the figure at a width in inches.
    """

    name: str
    title: str
    text: str
    draw: Draw
    data: pandas.DataFrame


def svg(draw: Draw, width: float, **options: Any) -> str:
    """Render a figure as SVG without prologue. The output is deterministic."""
    with styled():
        stream = io.StringIO()
        draw(width).savefig(stream, format="svg", metadata={"Date": None}, **options)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def write_files(figure: NamedFigure, folder: Path) -> None:
    """Write NAME.svg and NAME.pdf with a white background, and the data as NAME.csv."""
    write_file(folder / f"{figure.name}.svg", svg(figure.draw, WIDE, facecolor="white"))
    with styled():
        stream = io.BytesIO()
        figure.draw(WIDE).savefig(stream, format="pdf", facecolor="white", metadata={"CreationDate": None})
    write_file(folder / f"{figure.name}.pdf", stream.getvalue())
    write_file(folder / f"{figure.name}.csv", figure.data.to_csv(index=False, lineterminator="\n"))


def themed(figure: NamedFigure, width: float, prefix: str) -> str:
    """Render a figure as SVG with the page's CSS variables as colors, and with `prefix` before all ids."""
    image = svg(figure.draw, width, transparent=True)
    for color in ALL:
        image = image.replace(color.light, f"var(--{color.name})")
    return re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\1{prefix}", image)


def logarithmic(axes: Axes, which: str, *, ticks: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Give the `x` or `y` axis a logarithmic scale with plain numbers at these multiples of each power of ten."""
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=ticks, numticks=7))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def one_axes(width: float, ratio: float) -> tuple[Figure, Axes]:
    """Create a figure with one pair of axes; `ratio` is height / width."""
    figure = Figure((width, max(2.4, width * ratio)), layout="constrained")
    return figure, figure.subplots()


def legend(figure: Figure, axes: Axes, width: float) -> None:
    """Place the legend to the right of the axes if it fits, otherwise below them."""
    handles, labels = axes.get_legend_handles_labels()
    if width >= NARROW and max((len(line) for label in labels for line in label.splitlines()), default=0) <= _BESIDE:
        figure.legend(handles, labels, loc="outside right upper")
    else:
        legend_below(figure, handles, labels, width)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], width: float) -> None:
    """Place the legend below the axes in as many columns as fit, and extend the figure by its height."""
    most = int((width - _HANDLE) / _LETTER)
    folded = ["\n".join(fold(line, most) for line in label.splitlines()) for label in labels]
    longest = max((len(line) for label in folded for line in label.splitlines()), default=1)
    columns = max(1, min(len(labels), int(width / (_HANDLE + longest * _LETTER))))
    lines = max((label.count("\n") + 1 for label in folded), default=1)
    figure.set_figheight(figure.get_figheight() + _ROW * lines * -(-len(labels) // columns))
    figure.legend(handles, folded, loc="outside lower center", ncols=columns)


def folded_title(title: str, width: float, share: float = 0.7) -> str:
    """Fold a title above axes that occupy a `share` of the width."""
    return fold(title, int(share * width / _LETTER))


def _named_rows(axes: Axes, names: Sequence[str], labels: Sequence[str]) -> None:
    """Turn the vertical axis into named rows, the first on top, with labels to their right."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    for row, label in enumerate(labels):
        beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        axes.annotate(label, (1, row), (4, 0), **beside, va="center", fontsize=8.5, annotation_clip=False)


def _folded_names(names: Sequence[str], width: float) -> tuple[list[str], float]:
    """Fold row names to leave most of the width for the axes. Also returns the necessary height of a row in inches."""
    folded = [fold(name, max(20, int(0.3 * width / _LETTER))) for name in names]
    return folded, 0.17 * max((name.count("\n") + 1 for name in folded), default=1)


def forest(
    name: str, title: str, rows: Sequence[Mapping[str, Any]], unit: float = 1.0, source: str | None = None
) -> NamedFigure | None:
    """Draw a forest plot: one row per estimate, with its interval and published value, in panels side by side.

    Returns None if no panel has an estimate or a published value.

    Args:
        name: Base name of the figure's files.
        title: Heading.
        rows: Each has its `panel`, its name `row`, its `color` (empty for a summary of the others), `bound` (`AT_LEAST`,
            `AT_MOST` or empty) and, if known, the `published` value and the `estimate` with the ends `low` and `high` of
            its interval and its number of `seeds`.
        unit: Value that means no difference.
        source: Source of the published values, or None.
    """
    numbers = ["estimate", "low", "high", "seeds", "published"]
    data = pandas.DataFrame(rows, columns=["panel", "row", "bound", *numbers, "color"])
    data = data.astype(dict.fromkeys(numbers, float))
    known = data["estimate"].notna() | data["published"].notna()
    if not known.any():
        return None
    data = data[known.groupby(data["panel"]).transform("any")]
    panels, names = dict(list(data.groupby("panel", sort=False))), list(dict.fromkeys(data["row"]))
    seeds = sorted({int(number) for number in data["seeds"].dropna() if number > 1})
    lines = f"95 % interval, {counts(seeds)} seeds" if seeds else ""
    lines += "" if not seeds else ", rough (Student's t)" if seeds[0] < FEW else " (bootstrap)"

    def draw(width: float) -> Figure:
        folded, row_height = _folded_names(names, width)
        across = min(3, len(panels)) if width >= NARROW else 1
        down = -(-len(panels) // across)
        titles = [folded_title(panel, width / across, 0.57) for panel in panels]
        height = max(0.32, row_height) * len(names) + 0.5 + 0.18 * max(one.count("\n") + 1 for one in titles)
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

    told = [
        f"{panel}: " + ", ".join(f"{one.row} {one.bound.strip()}{one.estimate:.3g}" for one in marks.itertuples())
        for panel, marks in data[data["estimate"].notna()].groupby("panel", sort=False)
    ]
    shown = data.assign(bound=data["bound"].str.strip(), seeds=data["seeds"].astype("Int64")).drop(columns="color")
    return NamedFigure(name, title, f"{title}. " + "; ".join(told), draw, shown)


def _draw(axes: Axes, marks: pandas.DataFrame, names: Sequence[str], unit: float) -> None:
    axes.axvline(unit, color=MUTED.light, linewidth=1)
    labels = []
    for row, mark in enumerate(marks.itertuples()):
        style: dict[str, Any] = {"color": mark.color or INK.light}
        if not np.isnan(mark.published):
            axes.plot(mark.published, row + _BELOW, "D", markersize=5, fillstyle="none", **style)
        labels.append("–" if np.isnan(mark.estimate) else f"{mark.bound}{mark.estimate:.3g}")
        if np.isnan(mark.estimate):
            continue
        if mark.seeds > 1:
            axes.plot([mark.low, mark.high], [row, row], linewidth=2.4, solid_capstyle="butt", **style)
        shape, size = (_MARKERS[mark.bound], 6) if mark.color or mark.bound else ("D", 7)
        axes.plot(mark.estimate, row, shape, markersize=size, fillstyle="none" if mark.bound else "full", **style)
    _named_rows(axes, names, labels)
    points = marks[["published", "estimate"]].to_numpy(float)
    points = points[~np.isnan(points)]
    if points.size and points.min() > 0 and points.max() > _LOG * points.min():
        logarithmic(axes, "x", ticks=(1.0,))
        axes.margins(x=0.14)
        return
    numbers = np.append(points, unit)
    spread = max(np.ptp(numbers), 0.05 * np.abs(numbers).max(), 1e-9)
    reach = np.append(numbers, marks.loc[marks["seeds"] > 1, ["low", "high"]].to_numpy(float))
    low = max(reach.min(), numbers.min() - _REACH * spread)
    high = min(reach.max(), numbers.max() + _REACH * spread)
    room = max(0.08 * (high - low), 0.02 * np.abs(numbers).max(), 1e-9)
    axes.set_xlim(low - room, high + room)


def counts(seeds: Sequence[int]) -> str:
    """Return sorted numbers of seeds as `3` or `3 to 5`."""
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def stacked_bars(
    name: str,
    title: str,
    bars: Mapping[str, Mapping[str, float]],
    axis: str,
    *,
    colors: Mapping[str, str],
    labels: Sequence[str] = (),
    text: str = "",
) -> NamedFigure:
    """Draw horizontal stacked bars, given from bar to part to value, with parts in the order of their colors.

    Labels are to the right of the bars. The `text` precedes the numbers in the description.
    """

    def draw(width: float) -> Figure:
        names, row_height = _folded_names(list(bars), width)
        figure = Figure((width, max(0.34, row_height) * len(bars) + 1.0), layout="constrained")
        axes, left = figure.subplots(), np.zeros(len(bars))
        for part, color in colors.items():
            values = np.asarray([bar.get(part, 0.0) for bar in bars.values()])
            axes.barh(range(len(bars)), values, left=left, color=color, height=0.62, label=part)
            left += values
        _named_rows(axes, names, labels)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(axis)
        legend_below(figure, *axes.get_legend_handles_labels(), width)
        return figure

    told = [f"{bar}: " + ", ".join(f"{part} {value:.3g}" for part, value in of.items()) for bar, of in bars.items()]
    rows = [(bar, part, value) for bar, of in bars.items() for part, value in of.items()]
    data = pandas.DataFrame(rows, columns=["bar", "part", "value"])
    return NamedFigure(name, title, f"{text or title + '.'} " + "; ".join(told), draw, data)
