"""Pieces of an SVG: its style sheet, text, paths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

_GLYPH = 0.6  # width of a character, in sizes of the font: more than the average of common sans-serif fonts

STYLE = """
text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2937; }
.page { fill: #ffffff; }
.title { font-size: 18px; font-weight: 600; }
.note { font-size: 12px; fill: #4b5563; }
.name { font-size: 13px; font-weight: 600; }
.what { font-size: 11px; }
.where { font-size: 10px; fill: #4b5563; }
.value { font-size: 10px; fill: #374151; }
.panel { fill: none; stroke: #9ca3af; stroke-dasharray: 5 4; }
.box { stroke-width: 1.5; }
.graph { fill: #dbeafe; stroke: #2563eb; }
.vertex { fill: #dcfce7; stroke: #16a34a; }
.edge { fill: #fef3c7; stroke: #d97706; }
.sum { fill: #f3e8ff; stroke: #9333ea; }
.driver { fill: #e5e7eb; stroke: #6b7280; }
.line, .net { fill: none; stroke: #475569; stroke-width: 1.4; }
.net { stroke: #94a3b8; stroke-width: 1.1; }
.dot { fill: #94a3b8; }
.tip { fill: #475569; }
.far { fill: #94a3b8; }
g.tie:hover .line, g.tie:hover .net { stroke: #db2777; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb; }
.page { fill: #111827; }
.note, .where { fill: #9ca3af; }
.value { fill: #d1d5db; }
.panel { stroke: #6b7280; }
.graph { fill: #1e3a5f; stroke: #60a5fa; }
.vertex { fill: #14432a; stroke: #4ade80; }
.edge { fill: #4a3410; stroke: #fbbf24; }
.sum { fill: #3b2459; stroke: #c084fc; }
.driver { fill: #374151; stroke: #9ca3af; }
.line { stroke: #cbd5e1; }
.net { stroke: #64748b; }
.dot, .far { fill: #64748b; }
.tip { fill: #cbd5e1; }
}
"""


def text(x: float, y: float, style: str, content: str, anchor: str = "start") -> str:
    """A line of text that starts, or ends, at a point of its baseline."""
    end = ' text-anchor="end"' if anchor == "end" else ""
    return f'<text class="{style}" x="{x:g}" y="{y:g}"{end}>{escape(content)}</text>'


def width(content: str, size: float) -> float:
    """About how wide a line of text is, rather too much."""
    return len(content) * size * _GLYPH


def cut(content: str, most: float, size: float) -> str:
    """The text, or as much of it as the width holds."""
    length = int(most / (size * _GLYPH))
    return content if len(content) <= length else content[: length - 1] + "…"


def rounded(points: Sequence[Point], radius: float = 4.0) -> str:
    """A path of straight lines whose corners are round."""
    parts = [f"M{points[0][0]:g},{points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        a, b = (_towards(corner, other, radius) for other in (before, after))
        parts.append(f"L{a[0]:g},{a[1]:g} Q{corner[0]:g},{corner[1]:g} {b[0]:g},{b[1]:g}")
    parts.append(f"L{points[-1][0]:g},{points[-1][1]:g}")
    return " ".join(parts)


def _towards(start: Point, end: Point, most: float) -> Point:
    """A point on the way, at most so far, at most half way."""
    length = abs(end[0] - start[0]) + abs(end[1] - start[1])
    share = min(most / length, 0.5) if length else 0.0
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def junctions(paths: Sequence[Sequence[Point]]) -> set[Point]:
    """Where paths part: corners from which lines run in three directions or more."""
    runs: dict[Point, set[str]] = {}
    for corner in {point for path in paths for point in path}:
        runs[corner] = set()
        for path in paths:
            for one, other in itertools.pairwise(path):
                runs[corner] |= _directions(corner, one, other)
    return {corner for corner, directions in runs.items() if len(directions) > 2}


def _directions(point: Point, one: Point, other: Point) -> set[str]:
    """Into which directions a horizontal or vertical line runs on from a point."""
    (left, top), (right, bottom) = (
        (min(one[0], other[0]), min(one[1], other[1])),
        (max(one[0], other[0]), max(one[1], other[1])),
    )
    x, y = point
    if not (left <= x <= right and top <= y <= bottom):
        return set()
    sides = {"left": x > left, "right": x < right, "up": y > top, "down": y < bottom}
    return {side for side, runs in sides.items() if runs}
