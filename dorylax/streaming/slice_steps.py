"""The steps of a sweep on one slice, from the first to the last, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.jax_internals import Var
from dorylax.ops.row_loops.rows import RowRange, kept, packed
from dorylax.program.jaxpr.graph_operators import operator_of
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.along_edges import dense_operands
from dorylax.program.tasks.split_model import SplitModel
from dorylax.serverless.rows import cut
from dorylax.streaming.graph_steps import UnitRows, pull
from dorylax.streaming.schedule import Step
from dorylax.streaming.slices import Slices
from dorylax.streaming.stages import Stages


class Unit(NamedTuple):
    """A unit that is at work.

    Attributes:
        rows: how many it has.
        edges: its in-edges that are gone through, or, while `bits` is there, among which these are.
        read: its rows of what is read, by value.
        made: where slices put their rows of what is needed later.
        chosen: the rows that are computed, ascending; the others become 0. None: all.
        bits: of the vertices whose edges are gone through, as of `kept`. None: of all that are there.
        lengths: by how many edges of each row slices are cut, as offsets, where these are others than `edges` has.
        packed: whether `edges` are those of the rows that are computed, and of no other.
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
        """Offsets of the in-edges of the rows that are computed, int64 `[R+1]`, of which slices are cut."""
        if self.lengths is not None:
            return self.lengths
        if self.chosen is None or self.packed:
            return self.edges.offsets
        return np.append(0, np.cumsum(np.diff(self.edges.offsets)[self.chosen]))


class Part(NamedTuple):
    """The part of a unit that is a slice.

    Attributes:
        bounds: the first row and the one after the last, counted among those of the unit that are computed.
        rows: of each space, the first and the one after the last, among those of the unit.
        chosen: the rows of vertices among them that are computed, counted from the unit's first; None: all.
    """

    bounds: tuple[int, int]
    rows: Mapping[Space, tuple[int, int]]
    chosen: np.ndarray | None

    @property
    def sizes(self) -> dict[Space, int]:
        """How many rows are computed."""
        if self.chosen is not None:
            return {"vertex": len(self.chosen)}
        return {space: last - first for space, (first, last) in self.rows.items()}


@final
class SliceSteps:
    """Runs steps on slices; several threads may at a time.

    Args:
        program: whose steps.
        slices: the cut of units.
    """

    def __init__(self, program: SplitModel, slices: Slices) -> None:
        self._program, self._types = program, program.analysis.types
        self.stages = Stages(program, slices)

    def run(
        self,
        steps: Sequence[Step],
        unit: Unit,
        bounds: tuple[int, int],
        values: Mapping[Var, Any],
        whole: Callable[[Var], np.ndarray],
    ) -> dict[Var, Any]:
        """Goes through the stages and pulls of a sweep.

        Args:
            steps: of the sweep.
            unit: whose slice.
            bounds: the slice's first row and the one after its last, counted among those of the unit that are computed.
            values: what has no rows.
            whole: gives what is read through edges, for all vertices.

        Returns:
            What stages give that has no rows; what has is in `unit.made`, where there is a place for it.
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
            elif step.kind == "pull":
                equation = self._program.tasks[step.index].equations[0]
                operands = [whole(var) if role == "neighbour" else read(var) for var, role in dense_operands(equation)]
                found = pull(operator_of(equation), equation.params, operands, _edges(unit, part))
                rows.update(zip(equation.outvars, found, strict=True))
        for var, place in unit.made.items():
            self._put(var, place, part, rows[var])
        return free

    def rows_of(self, var: Var, rows: np.ndarray, part: Part) -> np.ndarray:
        """A slice's rows of those of its unit: a view, or a copy of those that are computed."""
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
    """A slice of a unit: of `unit.offsets`, between two rows. Rows that are not computed belong to the slice before them."""
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
    """The entries of an axis with `factor` for each row that belong to some rows."""
    return rows if factor == 1 else (rows[:, None] * factor + np.arange(factor)).ravel()
