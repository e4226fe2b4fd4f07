"""Figures of a report, by Matplotlib: how they are drawn at any width and written as SVG and PNG.

Each is a function of a width in inches, so that a page has one for screens and one for phones.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.report import theme
from dorylax.figure_style import styled

Draw = Callable[[float], Figure]

_BESIDE = 26  # letters of the longest name in a legend beside the axes
_ROW = 0.19  # inches of a row of a legend
_LETTER, _HANDLE = 0.075, 0.55  # inches of a letter, and of what stands before a name with the room around both
NARROW = 5.0
"""Inches; below it legends go under the axes."""


class NamedFigure(NamedTuple):
    """A figure.

    Attributes:
        name: for its files.
        title: above it.
        text: what it shows, for those who cannot see it.
        draw: makes it, in a width of so many inches.
    """

    name: str
    title: str
    text: str
    draw: Draw


def svg(draw: Draw, width: float) -> str:
    """A figure as SVG without prologue; the same bytes every time."""
    with styled():
        figure = draw(width)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def png(draw: Draw, width: float) -> bytes:
    """A figure as PNG, on white."""
    with styled():
        stream = io.BytesIO()
        draw(width).savefig(stream, format="png", dpi=160, facecolor=theme.PAPER.light, metadata={"Software": None})
    return stream.getvalue()


def one_axes(width: float, ratio: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; `ratio` is its height by its width."""
    figure = Figure((width, max(2.4, width * ratio)), layout="constrained")
    return figure, figure.subplots()


def legend(figure: Figure, axes: Axes, width: float) -> None:
    """Beside the axes where there is room, else under them."""
    handles, labels = axes.get_legend_handles_labels()
    if width >= NARROW and max((len(line) for label in labels for line in label.splitlines()), default=0) <= _BESIDE:
        figure.legend(handles, labels, loc="outside right upper")
    else:
        legend_below(figure, handles, labels, width)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], width: float) -> None:
    """Under the axes, in as many columns as fit; the figure grows by its rows."""
    most = int((width - _HANDLE) / _LETTER)
    folded = ["\n".join(fold(line, most) for line in label.splitlines()) for label in labels]
    longest = max((len(line) for label in folded for line in label.splitlines()), default=1)
    columns = max(1, min(len(labels), int(width / (_HANDLE + longest * _LETTER))))
    lines = max((label.count("\n") + 1 for label in folded), default=1)
    figure.set_figheight(figure.get_figheight() + _ROW * lines * -(-len(labels) // columns))
    figure.legend(handles, folded, loc="outside lower center", ncols=columns)


def fold(text: str, letters: int) -> str:
    """Text in lines of so many letters at most, which also break in long names of settings: after `_` and `=`."""
    lines = [""]
    for piece in re.findall(rf"[^ _=]{{0,{letters - 1}}}[^ ]? *", text):
        if len((lines[-1] + piece).rstrip()) > letters:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines if line.strip())


def folded_title(title: str, width: float, share: float = 0.7) -> str:
    """A title of axes that begins where they do, in as many lines as it takes; `share` is theirs of the width."""
    return fold(title, int(share * width / _LETTER))


def folded_names(names: Sequence[str], width: float) -> tuple[list[str], int]:
    """Names of rows, in lines that leave most of the width to what is drawn; and of how many lines the longest is."""
    folded = [fold(name, max(20, int(0.3 * width / _LETTER))) for name in names]
    return folded, max((name.count("\n") + 1 for name in folded), default=1)


def row_labels(axes: Axes, labels: Sequence[str]) -> None:
    """A text for each row, to the right of the axes, where nothing is drawn."""
    for row, label in enumerate(labels):
        axes.annotate(
            label,
            (1, row),
            (4, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )
