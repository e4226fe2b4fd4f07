"""What a sweep of several groups has shown in all of them: the answer group by group, and on the mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group
from dorylax.experiments.answer import MEASURE
from dorylax.experiments.measures import RATIO
from dorylax.experiments.pooling import Pool
from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NamedFigure
from dorylax.experiments.report.forest import Mark, Panel, forest, interval_line
from dorylax.experiments.report.tables import TITLES
from dorylax.experiments.seed_statistics import Interval

_COLUMNS = 3
_ALL = "mean over groups"


def overview_figure(groups: Sequence[Group], pool: Pool, asks: str, name: str) -> NamedFigure | None:
    """A panel for each variant, with a row for each group and one for the mean.

    Args:
        groups: of a sweep.
        pool: of all of them.
        asks: see `Comparison`.
        name: for its file.

    Returns:
        None where nothing can be compared.
    """
    rows = [*pool.groups, _ALL]
    title = f"Test {pool.metric.title}, points" if asks == "accuracy" else f"{TITLES[MEASURE[asks]]} to target, ×"
    compared = [group for group in groups if group.baseline is not None and group.target is not None]
    panels = []
    for place, pooled in enumerate(pool.variants):
        marks = [_mark(group, pooled.name, asks, theme.series(1 + place)) for group in compared]
        mean = pooled.means.get("accuracy" if asks == "accuracy" else MEASURE[asks])
        marks.append(Mark(theme.INK.light, _shown(mean, asks), bold=True))
        panels.append(Panel(pooled.name, marks, 0.0 if asks == "accuracy" else 1.0))
    every = [mark.estimate for panel in panels for mark in panel.marks if mark.estimate is not None]
    if not every:
        return None
    lines = interval_line(one.seeds for one in every)

    def draw(width: float) -> Figure:
        return forest(panels, rows, width, lines, columns=_COLUMNS)

    told = [
        f"{panel.title}: "
        + ", ".join(
            f"{row} {mark.sign}{mark.estimate.estimate:.3g}"
            for row, mark in zip(rows, panel.marks, strict=True)
            if mark.estimate is not None
        )
        for panel in panels
    ]
    heading = f"In each group: {title[0].lower()}{title[1:]}, relative to the baseline"
    return NamedFigure(f"{name}overview", heading, f"{title}, relative to the baseline. " + "; ".join(told), draw)


def _mark(group: Group, variant: str, asks: str, colour: str) -> Mark:
    found = next((one.compared for one in group.variants if one.name == variant), None)
    if found is None:
        return Mark(colour, None)
    if asks == "accuracy":
        return Mark(colour, _shown(found.accuracy if found.judged else None, asks))
    return Mark(colour, getattr(found, MEASURE[asks] + RATIO), found.sign)


def _shown(estimate: Interval | None, asks: str) -> Interval | None:
    """In points, if it is of accuracy."""
    if estimate is None or asks != "accuracy":
        return estimate
    ends = {end: 100 * getattr(estimate, end) for end in ("estimate", "low", "high")}
    return dataclasses.replace(estimate, **ends)
