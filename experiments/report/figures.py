"""Report figures: drawn by Matplotlib at any width, saved as SVG, PDF and CSV, and inlined in the page's colors."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from dorylax.figure_style import ALL, styled
from dorylax.store.durable import write_file

Draw = Callable[[float], Figure]

WIDE, PHONE = 7.6, 3.7
"""Figure widths in inches for screens and phones. The font size is the same for both."""
NARROW = 5.0
"""Width in inches below which legends and panels are stacked vertically."""
_BESIDE = 26  # maximum letters per line for a legend to the right of the axes
_ROW = 0.19  # height of a legend row in inches
_LETTER, _HANDLE = 0.075, 0.55  # widths in inches of a letter, and of a legend handle with its padding


class NamedFigure(NamedTuple):
    """Figure with its title, description, and data.

    Attributes:
        name: Base name of the figure's files.
        title: Heading.
        text: Alternative text for screen readers.
        draw: Function that draws the figure at a width in inches.
        data: Plotted numbers.
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
    """Write NAME.svg and NAME.pdf with a white background, and the data as NAME.csv.

    Raises:
        OSError: If the file system refuses.
    """
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


def fold(text: str, letters: int) -> str:
    """Break text into lines of at most `letters` characters. Long names of settings also break after `_` and `=`."""
    lines = [""]
    for piece in re.findall(rf"[^ _=]{{0,{letters - 1}}}[^ ]? *", text):
        if len((lines[-1] + piece).rstrip()) > letters:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines if line.strip())


def folded_title(title: str, width: float, share: float = 0.7) -> str:
    """Fold a title above axes that occupy a `share` of the width."""
    return fold(title, int(share * width / _LETTER))


def named_rows(axes: Axes, names: Sequence[str], labels: Sequence[str] | None = None) -> None:
    """Turn the vertical axis into named rows, the first on top, with optional labels to their right."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    for row, label in enumerate(labels or ()):
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


def folded_names(names: Sequence[str], width: float) -> tuple[list[str], int]:
    """Fold row names to leave most of the width for the axes. Also returns the maximum number of lines per name."""
    folded = [fold(name, max(20, int(0.3 * width / _LETTER))) for name in names]
    return folded, max((name.count("\n") + 1 for name in folded), default=1)
