"""Numbers that others have published, beside ours: how tables and figures of a report show them."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dorylax.experiments.report import theme

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


def circle(axes: Axes, ours: str) -> Line2D:
    """For a legend: what is ours."""
    return axes.plot([], [], "o", color=theme.INK.light, markersize=6, label=ours)[0]


def diamond(axes: Axes, source: str) -> Line2D:
    """For a legend: what others have published."""
    label = f"{TITLE}: {source}"
    return axes.plot([], [], "D", color=theme.INK.light, markersize=5, fillstyle="none", label=label)[0]
