"""Where the texts of a figure lie, by its geometry: whether one covers another, or what is drawn."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple
from unittest import mock

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOUCH = 0.5
"""Points by which boxes may overlap: those of letters that touch."""


class Box(NamedTuple):
    """A text that is shown, and where."""

    text: str
    box: Bbox


def boxes(figure: Figure) -> list[Box]:
    """Of all texts of a figure that are drawn."""
    drawn: list[Text] = []
    draw = Text.draw

    def noted(text: Text, *arguments: Any, **options: Any) -> None:
        drawn.append(text)
        draw(text, *arguments, **options)

    canvas = FigureCanvasAgg(figure)
    with mock.patch.object(Text, "draw", noted):
        canvas.draw()
    shown = [text for text in drawn if text.get_text().strip() and text.get_visible()]
    return [Box(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown]


def _inner(box: Bbox, figure: Figure) -> Bbox:
    return box.padded(-_TOUCH * figure.dpi / 72)


def over_each_other(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that overlap."""
    found = [Box(text, _inner(box, figure)) for text, box in boxes(figure)]
    return [(one.text, other.text) for one, other in itertools.combinations(found, 2) if one.box.overlaps(other.box)]


def over_what_is_drawn(figure: Figure) -> list[str]:
    """Texts that lie where axes show their lines, bands and bars."""
    return [
        text
        for text, box in boxes(figure)
        if any(axes.axison and axes.bbox.overlaps(_inner(box, figure)) for axes in figure.axes)
    ]


def cut(figure: Figure) -> list[str]:
    """Texts that reach beyond the figure."""
    whole = figure.bbox.padded(1.0)
    return [text for text, box in boxes(figure) if not (whole.contains(*box.min) and whole.contains(*box.max))]
