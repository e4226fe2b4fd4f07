"""A program as a drawing: an SVG file that needs nothing else, legible on light and dark backgrounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from dorylax.jax_internals import Var
from dorylax.program.tasks.label import task_label
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import Task
from dorylax.program.view import svg
from dorylax.program.view.arrangement import Arrangement, arrange
from dorylax.program.view.boxes import BOX_HEIGHT, BOX_WIDTH, Box
from dorylax.program.view.describe import crossing_values, operator_name, shape_text
from dorylax.program.view.svg import Point

_TOP = 118.0  # title, passes, legend, headings
_MIN_WIDTH = 620.0
_BOX_SIZE = f'width="{BOX_WIDTH:g}" height="{BOX_HEIGHT:g}"'
_LEGEND = {
    "graph": "graph operator",
    "vertex": "vertex stage (AV)",
    "edge": "edge stage (AE)",
    "sum": "sum over all rows",
    "driver": "driver",
}


def draw(program: SplitModel) -> str:
    """The graph of a program's tasks as an SVG.

    The forward pass runs down the left, the backward pass up the right; what runs once is above. A box is a task (number,
    name, what it does, who runs it), a line says what one task reads of another; inputs and parameters are not drawn. Boxes
    and lines name all their values where the pointer rests on them.

    Args:
        program: a program.
    """
    return _Drawing(program).text()


class _Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Rectangle) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class _Drawing:
    def __init__(self, program: SplitModel) -> None:
        self._program = program
        self._arrangement: Arrangement = arrange(program, _TOP)
        self._width = round(max(self._arrangement.width, self._head_width()))
        boxes = (_Rectangle(box.x, box.y, box.x + BOX_WIDTH, box.y + BOX_HEIGHT) for box in self._arrangement.boxes)
        self._taken: list[_Rectangle] = list(boxes)

    def text(self) -> str:
        name = self._program.traced.name
        # Labels last but one: they go where nothing else is.
        parts = [self._head(name), self._panel(), self._nets(), self._lines(), self._labels()]
        body = [*itertools.chain(*parts), *(self._box(box) for box in self._arrangement.boxes)]
        width, height = self._width, round(self._arrangement.height)
        start = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{escape(name)}: graph of tasks">'
        )
        markers = "".join(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" '
            f'markerUnits="userSpaceOnUse"><path class="{kind}" d="M0,0.5 L8,4 L0,7.5 z"/></marker>'
            for kind in ("tip", "far")
        )
        page = f'<rect class="page" width="{width}" height="{height}"/>'
        return (
            "\n".join([start, f"<style>{svg.STYLE}</style>", f"<defs>{markers}</defs>", page, *body, "</svg>"]) + "\n"
        )

    def _head_texts(self) -> tuple[str, str]:
        count = len(self._program.tasks)
        passes = ", ".join(self._program.passes) or "none"
        return f"{self._program.traced.name}: {count} task{'s' * (count != 1)}", f"passes: {passes}"

    def _head_width(self) -> float:
        title, passes = self._head_texts()
        return max(_MIN_WIDTH, 48 + svg.width(title, 18.0), 48 + svg.width(passes, 12.0))

    def _head(self, name: str) -> list[str]:
        title, passes = self._head_texts()
        parts = [
            f"<title>{escape(name)}</title>",
            svg.text(24.0, 32.0, "title", title),
            svg.text(24.0, 54.0, "note", passes),
        ]
        x = 24.0
        drawn = set(map(_kind, self._program.tasks))
        for kind, meaning in _LEGEND.items():
            if kind not in drawn:
                continue
            parts.append(f'<rect class="box {kind}" x="{x:g}" y="67" width="14" height="14" rx="3"/>')
            parts.append(svg.text(x + 20, 78.0, "note", meaning))
            x += 20 + svg.width(meaning, 12.0) + 18
        return parts

    def _panel(self) -> list[str]:
        """Headings, and the line that sets apart what runs once."""
        bottom, boxes = self._arrangement.once_bottom, self._arrangement.boxes
        y = _TOP - 10.0 if bottom is None else bottom + 17
        headings = [(24.0, y, "forward ↓", "start"), (self._width - 24.0, y, "every epoch", "end")]
        if any(box.right for box in boxes):
            headings.append((min(box.x for box in boxes if box.right), y, "backward ↑", "start"))
        parts = []
        if bottom is not None:
            headings.append((24.0, _TOP - 10.0, "once, before training", "start"))
            parts.append(f'<path class="panel" d="M24,{bottom:g} H{self._width - 24:g}"/>')
        for x, base, text, anchor in headings:
            left = x - svg.width(text, 12.0) if anchor == "end" else x
            self._taken.append(_Rectangle(left, base - 11, left + svg.width(text, 12.0), base + 3))
            parts.append(svg.text(x, base, "note", text, anchor))
        return parts

    def _box(self, box: Box) -> str:
        task = self._program.tasks[box.index]
        label, operator = f"{box.index} {task_label(self._program, box.index)}", operator_name(self._program, box.index)
        reads, writes = crossing_values(self._program, box.index)
        tooltip = f"{label}: {operator or 'driver'}\nreads {_listed(reads)}\nwrites {_listed(writes)}"
        parts = [
            f'<g class="task" id="task-{box.index}"><title>{escape(tooltip)}</title>',
            f'<rect class="box {_kind(task)}" x="{box.x:g}" y="{box.y:g}" {_BOX_SIZE} rx="6"/>',
            svg.text(box.x + 10, box.y + 18, "name", label),
        ]
        if task.kind != "driver":
            parts.append(svg.text(box.x + BOX_WIDTH - 8, box.y + 17, "where", task.place, "end"))
        parts.append(
            svg.text(box.x + 10, box.y + 34, "what", svg.cut(operator or _summary(writes), BOX_WIDTH - 20, 11.0))
        )
        return "".join([*parts, "</g>"])

    def _lines(self) -> list[str]:
        parts = []
        for line in self._arrangement.lines:
            (x0, y0), (x1, y1) = line.start, line.end
            middle = (y0 + y1) / 2
            path = f"M{x0:g},{y0:g} C{x0:g},{middle:g} {x1:g},{middle:g} {x1:g},{y1:g}"
            title = self._tie(line.source, line.target, line.values)
            parts.append(f'<g class="tie">{title}<path class="line" marker-end="url(#tip)" d="{path}"/></g>')
            self._taken.extend(_strip(_curve(line.start, line.end)))
        return parts

    def _nets(self) -> list[str]:
        parts = []
        for net in self._arrangement.nets:
            inner = []
            for branch in net.branches:
                title = self._tie(net.source, branch.target, branch.values)
                path = f'<path class="net" marker-end="url(#far)" d="{svg.rounded(branch.points)}"/>'
                inner.append(f"<g>{title}{path}</g>")
                self._taken.extend(_strip(branch.points))
            parting = svg.junctions([branch.points for branch in net.branches])
            dots = (f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="2.4"/>' for x, y in sorted(parting))
            parts.append(f'<g class="tie">{"".join(inner)}{"".join(dots)}</g>')
        return parts

    def _tie(self, source: int, target: int, values: Sequence[Var]) -> str:
        names = [f"{k} {task_label(self._program, k)}" for k in (source, target)]
        return f"<title>{escape(f'{names[0]} → {names[1]}: {_listed(values)}')}</title>"

    def _labels(self) -> list[str]:
        """What crosses on a line, wherever there is room for it."""
        parts = []
        for line in self._arrangement.lines:
            text = _summary(line.values)
            parts.extend(self._label(text, _beside(line.start, line.end)))
        for net in self._arrangement.nets:
            values = tuple(dict.fromkeys(var for branch in net.branches for var in branch.values))
            start, turn, along = net.branches[0].points[0], net.branches[0].points[1], net.branches[0].points[2:3]
            forward = not along or along[0][0] >= start[0]
            near, far = ("start", "end") if forward else ("end", "start")
            side, height = (4 if forward else -4), (start[1] + turn[1]) / 2 + 3
            candidates = [
                (turn[0] + side, turn[1] - 3, near),
                (turn[0] - side, height, far),
                (turn[0] + side, height, near),
            ]
            parts.extend(self._label(_summary(values), candidates))
        return parts

    def _label(self, text: str, candidates: Iterable[tuple[float, float, str]]) -> list[str]:
        wide = svg.width(text, 10.0)
        for x, y, anchor in candidates:
            left = x - wide if anchor == "end" else x
            area = _Rectangle(left, y - 8, left + wide, y + 2)
            if left > 0 and not any(area.meets(other) for other in self._taken):
                self._taken.append(area)
                return [svg.text(x, y, "value", text, anchor)]
        return []


def _kind(task: Task) -> str:
    return task.kind if task.kind != "stage" else str(task.space)


def _listed(values: Iterable[Var]) -> str:
    """All values with dtypes, for tooltips."""
    return ", ".join(f"{getattr(var.aval, 'dtype', '')}{shape_text(var)}" for var in values) or "nothing"


def _summary(values: Sequence[Var]) -> str:
    """The first value's shape, and how many more there are."""
    if not values:
        return ""
    return shape_text(values[0]) + (f" +{len(values) - 1}" if len(values) > 1 else "")


def _beside(start: Point, end: Point) -> list[tuple[float, float, str]]:
    """Places for a label beside a line: near its end, near its beginning, on either side."""
    (x0, y0), (x1, y1) = start, end
    down = 1 if y1 > y0 else -1
    near_end = y1 - (8 if down > 0 else -15)
    near_start = y0 + (14 if down > 0 else -6)
    middle = (y0 + y1) / 2 + 3
    return [
        (x + side * 5, y, "start" if side > 0 else "end")
        for x, y in ((x1, near_end), (x0, near_start), ((x0 + x1) / 2, middle))
        for side in (-down, down)
    ]


def _curve(start: Point, end: Point) -> list[Point]:
    """Points on the line that is drawn between two boxes."""
    (x0, y0), (x1, y1) = start, end
    steps = [k / 8 for k in range(9)]
    return [(x0 + (x1 - x0) * (3 * t**2 - 2 * t**3), y0 + (y1 - y0) * t) for t in steps]


def _strip(points: Sequence[Point]) -> Iterable[_Rectangle]:
    """Rectangles that a path runs through."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        yield _Rectangle(min(x0, x1) - 1, min(y0, y1) - 1, max(x0, x1) + 1, max(y0, y1) + 1)
