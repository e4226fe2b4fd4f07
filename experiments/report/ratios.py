"""What it took to the target, relative to the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Compared, Group, Variant
from dorylax.experiments.measures import RATIO, TO_TARGET, TO_TARGET_RATIO
from dorylax.experiments.report import published, theme
from dorylax.experiments.report.figures import NARROW, NamedFigure, folded_names
from dorylax.experiments.report.tables import TITLES, TURNED
from dorylax.experiments.seed_statistics import Interval

_SHORT_BASE = 24  # letters of a baseline's name that fits into the label of an axis


def ratio_figure(group: Group, name: str) -> NamedFigure | None:
    """Epochs, time and cost to the target relative to the baseline, with intervals and what was published."""
    rows = [(place, one, one.compared) for place, one in enumerate(group.variants) if one.compared is not None]
    rows = [(place, one, found) for place, one, found in rows if not one.is_baseline]
    base = next((one.name for one in group.variants if one.is_baseline), None)
    if not rows or base is None:
        return None
    measures = [
        what
        for what in TO_TARGET
        if what in group.published or any(getattr(found, what + RATIO) is not None for _, _, found in rows)
    ]

    def draw(width: float) -> Figure:
        side_by_side = width >= NARROW
        names, lines = folded_names([variant.name for _, variant, _ in rows], width)
        shape = (1, len(measures)) if side_by_side else (len(measures), 1)
        height = max(0.34, 0.17 * lines) * len(rows) + 0.75
        figure = Figure((width, height if side_by_side else height * len(measures)), layout="constrained")
        all_axes = np.ravel(np.asarray(figure.subplots(*shape, squeeze=False)))
        for place, (axes, what) in enumerate(zip(all_axes, measures, strict=True)):
            _forest(axes, rows, what)
            axes.set_yticks(range(len(rows)), names)
            axes.set_title(f"{TITLES[what]} to target, ×")
            if side_by_side and place:
                axes.set_yticklabels([])
        if group.published and group.source is not None:
            published.legend(figure, all_axes[0], "trained", group.source, width)
        return figure

    title = f"To the target, relative to {base}"
    text = f"{title}: " + " ".join(group.sentences)
    return NamedFigure(f"{name}ratios", title, text, draw)


def _forest(axes: Axes, rows: Sequence[tuple[int, Variant, Compared]], what: str) -> None:
    axes.axvline(1, color=theme.MUTED.light, linewidth=1)
    for row, (place, variant, found) in enumerate(rows):
        colour = theme.series(place)
        if (theirs := variant.published.get(what + TO_TARGET_RATIO)) is not None:
            published.draw_point(axes, theirs, row, colour)
        ratio: Interval | None = getattr(found, what + RATIO)
        if ratio is None:
            continue
        axes.plot([ratio.low, ratio.high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt")
        # Open where some runs never came there: it is a bound.
        axes.plot(ratio.estimate, row, "o", color=colour, markersize=6, fillstyle="none" if found.sign else "full")
        label = f"{found.sign}{ratio.estimate:.2f}"
        axes.annotate(label, (ratio.estimate, row), (0, 6), textcoords="offset points", ha="center", fontsize=8.5)
    axes.set_ylim(len(rows) - 0.5, -0.75)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.tick_params(axis="y", length=0)


def value_figure(group: Group, name: str) -> NamedFigure | None:
    """Value, 1/(time · dollars) to the target, relative to the baseline: a bar each."""
    rows = [(place, one) for place, one in enumerate(group.variants) if one.compared is not None]
    if not any(one.compared is not None and one.compared.value_ratio is not None for _, one in rows):
        return None
    base = next(one.name for one in group.variants if one.is_baseline)

    def value(variant: Variant) -> float:
        found = variant.compared
        return 1.0 if found is None or found.value_ratio is None else found.value_ratio

    def draw(width: float) -> Figure:
        names, lines = folded_names([variant.name for _, variant in rows], width)
        figure = Figure((width, max(0.3, 0.17 * lines) * len(rows) + 0.7), layout="constrained")
        axes = figure.subplots()
        for row, (place, variant) in enumerate(rows):
            axes.barh(row, value(variant), color=theme.series(place), height=0.62)
            sign = "" if variant.compared is None or variant.is_baseline else TURNED[variant.compared.sign]
            label = f" {sign}{value(variant):.2f}"
            axes.annotate(label, (value(variant), row), va="center", fontsize=8.5)
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.12)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(
            f"value, 1/(time · dollars), × {base}" if len(base) <= _SHORT_BASE else "value, × the baseline's"
        )
        return figure

    text = "Value relative to " + base + ": " + ", ".join(f"{one.name} {value(one):.2f}" for _, one in rows)
    return NamedFigure(f"{name}value", "Value", text, draw)
