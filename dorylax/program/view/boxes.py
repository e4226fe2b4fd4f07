"""Which row and column each task of a program is drawn in.

The forward pass runs down the left half, the backward pass up the right half, so that a task of the backward pass lies
beside the one whose values it needs; what runs once is above. Each half has lanes, vertices outside and edges inside.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import final

from dorylax.jax_internals import Var
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import Task
from dorylax.program.view.describe import crossing_values, sources

BOX_WIDTH, BOX_HEIGHT = 184.0, 42.0


@final
@dataclasses.dataclass
class Box:
    """A task's box.

    Attributes:
        index: of the task.
        right: whether it lies in the right half.
        row: from the top.
        column: within its half.
        x, y: of its upper left corner.
    """

    index: int
    right: bool
    row: int
    column: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def centre(self) -> float:
        """Of its width."""
        return self.x + BOX_WIDTH / 2

    def side(self, out: bool) -> float:
        """Height at which lines leave it, or reach it: the right half flows upwards."""
        return self.y if out == self.right else self.y + BOX_HEIGHT

    def gap(self, out: bool) -> int:
        """The gap between rows on that side; gap g is above row g."""
        return self.row + (out != self.right)


Ties = dict[tuple[int, int], tuple[Var, ...]]


def ties_of(program: SplitModel) -> Ties:
    """(writer, reader) → values."""
    home = sources(program)
    found: dict[tuple[int, int], list[Var]] = defaultdict(list)
    for reader in range(len(program.tasks)):
        for var in crossing_values(program, reader)[0]:
            if var in home:
                found[home[var], reader].append(var)
    return {tie: tuple(values) for tie, values in found.items()}


def place_in_rows(tasks: Sequence[Task], ties: Ties) -> tuple[list[Box], int]:
    """Boxes with their rows, and how many rows what runs once takes."""
    groups = [0 if task.when == "once" else 1 + _ends(task) for task in tasks]
    rows = [0] * len(tasks)
    for group in (0, 1, 2):
        members = [k for k, own in enumerate(groups) if own == group]
        # The driver's beginning, and its end where the backward pass is drawn; in between it has tasks like others.
        inner = {(a if group == 2 else b) for a, b in ties if groups[a] == groups[b] == group}
        first = [k for k in members if tasks[k].kind == "driver" and group and k not in inner]
        for k in members:
            rows[k] = int(bool(first) and k not in first)
        # The backward pass flows upwards: its rows count from its end.
        for k in reversed(members) if group == 2 else members:
            near = [(b if group == 2 else a) for a, b in ties if (a if group == 2 else b) == k]
            rows[k] = max([rows[k], *(rows[j] + 1 for j in near if groups[j] == group)])
    above = max((rows[k] + 1 for k, group in enumerate(groups) if not group), default=0)
    return [Box(k, groups[k] == 2, rows[k] + (above if groups[k] else 0)) for k in range(len(tasks))], above


def _ends(task: Task) -> bool:
    """Whether a task is drawn with the backward pass: new state, of the forward pass, is made at the epoch's end too."""
    return task.phase == "backward" or (task.kind == "driver" and task.phase == "both")


def place_in_columns(boxes: Iterable[Box], tasks: Sequence[Task]) -> list[int]:
    """Gives boxes their columns; the number of columns of each half."""
    counts = []
    for right in (False, True):
        lanes: list[list[list[Box]]] = []
        for edge in (right, not right):  # vertices outside, edges inside
            rows: dict[int, list[Box]] = defaultdict(list)
            for box in boxes:
                if box.right == right and (tasks[box.index].space == "edge") == edge:
                    rows[box.row].append(box)
            lanes.append(list(rows.values()))
        start = 0
        for lane in lanes:
            for row in lane:
                for column, box in enumerate(row):
                    box.column = start + column
            start += max(map(len, lane), default=0)
        counts.append(start)
    return counts
