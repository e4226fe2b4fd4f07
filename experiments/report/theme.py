"""Colours of figures: drawn once, shown in light and in dark.

A figure is drawn in the light colours. In its SVG each colour becomes a CSS variable of the page, which has other values
where the reader prefers dark; files of their own keep the light ones. The hues are Okabe and Ito's, which readers with any
colour vision can tell apart; those for dark are lighter or darker variants of the same.
"""

from __future__ import annotations

from typing import NamedTuple


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


def themed(svg: str) -> str:
    """An SVG whose colours are the page's variables."""
    for colour in ALL:
        svg = svg.replace(colour.light, f"var(--{colour.name})")
    return svg


def variables() -> str:
    """The CSS that gives the variables their values."""
    light = " ".join(f"--{colour.name}: {colour.light};" for colour in ALL)
    dark = " ".join(f"--{colour.name}: {colour.dark};" for colour in ALL)
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {dark} }} }}\n"
        f":root[data-theme='dark'] {{ color-scheme: dark; {dark} }}\n"
        f":root[data-theme='light'] {{ color-scheme: light; }}"
    )
