"""Numbers that others have published, beside ours: how tables and figures of a report show them."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import legend_below

TITLE = "published"
"""Of a column."""
_BELOW = 0.24
"""Rows by which a published point lies below ours."""


def note(source: str) -> str:
    """What follows the note of a table that shows some."""
    return f" Published: {source}."


def draw_point(axes: Axes, number: float, row: int, colour: str) -> None:
    """A diamond below what is ours."""
    axes.plot(number, row + _BELOW, "D", color=colour, markersize=5, fillstyle="none")


def legend(figure: Figure, axes: Axes, ours: str, source: str, width: float) -> None:
    """What is what, under the axes; `ours` says what ours is."""
    circle = axes.plot([], [], "o", color=theme.INK.light, markersize=6)[0]
    diamond = axes.plot([], [], "D", color=theme.INK.light, markersize=5, fillstyle="none")[0]
    legend_below(figure, [circle, diamond], [ours, f"published: {source}"], width)
