"""What it took to the target, relative to the baseline."""

from __future__ import annotations

from matplotlib.figure import Figure

from dorylax.experiments.analysis import Compared, Group, Variant
from dorylax.experiments.measures import RATIO, TO_TARGET, TO_TARGET_RATIO
from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NamedFigure, folded_names, row_labels
from dorylax.experiments.report.forest import Mark, Panel, forest, interval_line
from dorylax.experiments.report.tables import TITLES, TURNED
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sentences import sentences

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

    if not measures:
        return None
    lines = interval_line(found.judged for _, _, found in rows if found.judged)

    def draw(width: float) -> Figure:
        panels = [
            Panel(f"{TITLES[what]} to target, ×", [_mark(place, one, found, what) for place, one, found in rows])
            for what in measures
        ]
        names = [variant.name for _, variant, _ in rows]
        return forest(panels, names, width, lines, ours="trained", source=group.source if group.published else None)

    title = f"To the target, relative to {base}"
    return NamedFigure(f"{name}ratios", title, f"{title}: " + " ".join(sentences(group)), draw)


def _mark(place: int, variant: Variant, found: Compared, what: str) -> Mark:
    ratio: Interval | None = getattr(found, what + RATIO)
    return Mark(theme.series(place), ratio, found.sign, variant.published.get(what + TO_TARGET_RATIO))


def value_figure(group: Group, name: str) -> NamedFigure | None:
    """Value, 1/(time · dollars) to the target, relative to the baseline: a bar each."""
    rows = [
        (place, one, 1.0 if one.is_baseline else one.compared.value_ratio or 0.0)
        for place, one in enumerate(group.variants)
        if one.compared is not None and (one.is_baseline or one.compared.value_ratio is not None)
    ]
    if all(one.is_baseline for _, one, _ in rows):
        return None
    base = next(one.name for one in group.variants if one.is_baseline)

    def label(variant: Variant, value: float) -> str:
        sign = "" if variant.compared is None or variant.is_baseline else TURNED[variant.compared.sign]
        return f"{sign}{value:.2f}"

    def draw(width: float) -> Figure:
        names, lines = folded_names([variant.name for _, variant, _ in rows], width)
        figure = Figure((width, max(0.3, 0.17 * lines) * len(rows) + 0.7), layout="constrained")
        axes = figure.subplots()
        for row, (place, _, value) in enumerate(rows):
            axes.barh(row, value, color=theme.series(place), height=0.62)
        row_labels(axes, [label(variant, value) for _, variant, value in rows])
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(
            f"value, 1/(time · dollars), × {base}" if len(base) <= _SHORT_BASE else "value, × the baseline's"
        )
        return figure

    text = "Value relative to " + base + ": " + ", ".join(f"{one.name} {label(one, value)}" for _, one, value in rows)
    return NamedFigure(f"{name}value", "Value", text, draw)
