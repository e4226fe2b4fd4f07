"""Colours of figures (`dorylax.figure_style`): drawn once, shown in light and in dark.

A figure is drawn in the light colours. In its SVG each colour becomes a CSS variable of the page, which has other values
where the reader prefers dark; files of their own keep the light ones.
"""

from __future__ import annotations

from dorylax.figure_style import ALL, INK, LINE, MUTED, PANEL, PAPER, SERIES, Colour, series

__all__ = ["ALL", "INK", "LINE", "MUTED", "PANEL", "PAPER", "SERIES", "Colour", "series", "themed", "variables"]


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
