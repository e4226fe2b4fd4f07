"""How figures look: their colours, and Matplotlib as everything of dorylax uses it.

The hues are Okabe and Ito's, which readers with any colour vision can tell apart; those for dark are lighter or darker
variants of the same. Reports show figures in both (`dorylax.experiments.report.figures`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Colour(NamedTuple):
    """A colour by its name in CSS, light and dark."""

    name: str
    light: str
    dark: str


INK = Colour("ink", "#1c2530", "#e4e9ef")
MUTED = Colour("muted", "#5b6774", "#9aa7b4")
LINE = Colour("line", "#d5dbe1", "#38424d")
PAPER = Colour("paper", "#fdfdfc", "#14181d")
PANEL = Colour("panel", "#f1f4f6", "#1d232a")

SERIES = (
    Colour("series-0", "#1b1f24", "#f2f4f6"),
    Colour("series-1", "#0072b1", "#56a8e0"),
    Colour("series-2", "#d35e02", "#f08a3c"),
    Colour("series-3", "#029e72", "#35c79a"),
    Colour("series-4", "#c4679e", "#e292c2"),
    Colour("series-5", "#b58a00", "#e0bf3f"),
    Colour("series-6", "#5aa5d8", "#8cc9f0"),
    Colour("series-7", "#7b3fa0", "#b583d6"),
    Colour("series-8", "#8a2a2a", "#d97b7b"),
)
"""Of variants, in their order; the first is for the baseline."""

ALL = (INK, MUTED, LINE, PAPER, PANEL, *SERIES)


def series(place: int) -> str:
    """The light colour of the variant at a place."""
    return SERIES[place % len(SERIES)].light


_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": "sans-serif",
    "svg.fonttype": "none",  # text stays text: it can be searched, and has the page's font
    "svg.hashsalt": "dorylax",  # the same bytes from the same numbers
    "axes.edgecolor": LINE.light,
    "axes.labelcolor": MUTED.light,
    "axes.titlecolor": INK.light,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": LINE.light,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "text.color": INK.light,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
}


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib as dorylax uses it, whatever the user has set."""
    import matplotlib as mpl  # late: colours alone need it not

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield
