"""Runs the steps of a sweep on one slice, from the first to the last, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.jax_internals import Var
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.row_loops.rows import RowRange, kept, packed
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.stage_calls import cut
from dorylax.program.tasks.steps import Step
from dorylax.streaming.graph_steps import UnitRows, pull
from dorylax.streaming.slices import Slices
from dorylax.streaming.stages import Stages


class Unit(NamedTuple):
    """A unit in progress.

    Attributes:
        rows: Number of its rows.
        edges: Its in-edges that are traversed; if `bits` is given, the edges from which they are selected.
        read: Its rows of the values read in order.
        made: Arrays into which slices write their rows of values needed later.
        chosen: Positions of the rows to compute, ascending; other rows become 0. None: all.
        bits: Bit mask of the vertices whose edges are traversed, as in `kept`. None: all.
        lengths: Offsets by which slices are cut, if they differ from those of `edges`.
        packed: Whether `edges` holds only the edges of the rows to compute.
    """

    rows: int
    edges: UnitRows
    read: Mapping[Any, Any]
    made: Mapping[Var, np.ndarray]
    chosen: np.ndarray | None = None
    bits: np.ndarray | None = None
    lengths: np.ndarray | None = None
    packed: bool = False

    @property
    def offsets(self) -> np.ndarray:
        """Offsets of the in-edges of the rows to compute, int64 `[R+1]`, by which slices are cut."""
        if self.lengths is not None:
            return self.lengths
        if self.chosen is None or self.packed:
            return self.edges.offsets
        return np.append(0, np.cumsum(np.diff(self.edges.offsets)[self.chosen]))


class Part(NamedTuple):
    """The part of a unit that forms a slice.

    Attributes:
        bounds: First row and end row, counted among the unit's rows to compute.
        rows: For each space, first row and end row among the rows of the unit.
        chosen: Positions of the vertices to compute among them, counted from the unit's first; None: all.
    """

    bounds: tuple[int, int]
    rows: Mapping[Space, tuple[int, int]]
    chosen: np.ndarray | None

    @property
    def sizes(self) -> dict[Space, int]:
        """Numbers of rows to compute."""
        if self.chosen is not None:
            return {"vertex": len(self.chosen)}
        return {space: last - first for space, (first, last) in self.rows.items()}


@final
class SliceSteps:
    """Runs steps on slices; safe for concurrent use by several threads.

    Args:
        program: The program.
        slices: The cut of units.
    """

    def __init__(self, program: SplitModel, slices: Slices) -> None:
        self._types = program.analysis.types
        self.stages = Stages(program, slices)

    def run(
        self,
        steps: Sequence[Step],
        unit: Unit,
        bounds: tuple[int, int],
        values: Mapping[Var, Any],
        whole: Callable[[Var], np.ndarray],
    ) -> dict[Var, Any]:
        """Run the stages and pulls of a sweep.

        Args:
            steps: Steps of the sweep.
            unit: The slice's unit.
            bounds: First row and end row of the slice, counted among the unit's rows to compute.
            values: Values without rows.
            whole: Returns a value that is read through edges, for all vertices.

        Returns:
            Results of stages without rows. Results with rows are written to their arrays in `unit.made`.
        """
        rows: dict[Var, Any] = {}
        free: dict[Var, Any] = {}
        part = part_of(unit, bounds)

        def read(var: Var) -> Any:
            if var not in rows:
                rows[var] = self.rows_of(var, unit.read[var], part)
            return rows[var]

        for step in steps:
            if step.kind == "stage":
                operands = [read(var) if isinstance(self._types[var], Rows) else values[var] for var in step.reads]
                for var, value in zip(step.writes, self.stages.of_slice(step, part.sizes, operands), strict=True):
                    (rows if isinstance(self._types[var], Rows) else free)[var] = value
            elif step.kind == "gather":
                operands = [read(one.var) if one.publication is None else whole(one.var) for one in step.operands]
                found = pull(OPERATORS[step.operator], step.params, operands, _edges(unit, part))
                rows.update(zip(step.equations[0].outvars, found, strict=True))
        for var, place in unit.made.items():
            self._put(var, place, part, rows[var])
        return free

    def rows_of(self, var: Var, rows: np.ndarray, part: Part) -> np.ndarray:
        """Return a slice's rows from those of its unit: a view, or a copy of the rows to compute."""
        found = self._rows(var)
        if part.chosen is None:
            return cut(rows, found.axis, found.factor, *part.rows[found.space])
        return np.take(rows, entries_of(part.chosen, found.factor), axis=found.axis)

    def _put(self, var: Var, place: np.ndarray, part: Part, rows: np.ndarray) -> None:
        found = self._rows(var)
        cut(place, found.axis, found.factor, *part.rows[found.space])[...] = rows if part.chosen is None else 0
        if part.chosen is not None:
            chosen: tuple[Any, ...] = (*(slice(None),) * found.axis, entries_of(part.chosen, found.factor))
            place[chosen] = rows

    def _rows(self, var: Var) -> Rows:
        found = self._types[var]
        assert isinstance(found, Rows)
        return found


def part_of(unit: Unit, bounds: tuple[int, int]) -> Part:
    """Return the slice between two of the rows of `unit.offsets`; skipped rows belong to the slice before them."""
    offsets = unit.edges.offsets
    if unit.chosen is None:
        return Part(bounds, {"vertex": bounds, "edge": (int(offsets[bounds[0]]), int(offsets[bounds[1]]))}, None)
    first, last = bounds
    begin = int(unit.chosen[first]) if first else 0
    end = int(unit.chosen[last]) if last < len(unit.chosen) else unit.rows
    return Part(bounds, {"vertex": (begin, end)}, unit.chosen[first:last])


def _edges(unit: Unit, part: Part) -> RowRange:
    if unit.packed:
        return unit.edges.between(*part.bounds)
    first, last = part.rows["vertex"]
    mine = unit.edges.between(first, last)
    if part.chosen is not None:
        return packed(mine, part.chosen - first)
    return mine if unit.bits is None else kept(mine, unit.bits)


def entries_of(rows: np.ndarray, factor: int) -> np.ndarray:
    """Return the entries of some rows, for an axis with `factor` entries per row."""
    return rows if factor == 1 else (rows[:, None] * factor + np.arange(factor)).ravel()
