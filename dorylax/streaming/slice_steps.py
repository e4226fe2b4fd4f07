"""The steps of a sweep on one slice, from the first to the last, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.jax_internals import Var
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
        edges: its in-edges.
        read: its rows of what is read, by value.
        made: where slices put their rows of what is needed later.
    """

    edges: UnitRows
    read: Mapping[Any, Any]
    made: Mapping[Var, np.ndarray]


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
            bounds: the slice's first row and the one after its last, counted from the unit's first.
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
                rows[var] = self.cut(var, unit.read[var], part)
            return rows[var]

        for step in steps:
            if step.kind == "stage":
                operands = [read(var) if isinstance(self._types[var], Rows) else values[var] for var in step.reads]
                sizes = {space: last - first for space, (first, last) in part.items()}
                for var, value in zip(step.writes, self.stages.of_slice(step, sizes, operands), strict=True):
                    (rows if isinstance(self._types[var], Rows) else free)[var] = value
            elif step.kind == "pull":
                equation = self._program.tasks[step.index].equations[0]
                operands = [whole(var) if role == "neighbour" else read(var) for var, role in dense_operands(equation)]
                found = pull(operator_of(equation), equation.params, operands, unit.edges.between(*bounds))
                rows.update(zip(equation.outvars, found, strict=True))
        for var, place in unit.made.items():
            self.cut(var, place, part)[...] = rows[var]
        return free

    def cut(self, var: Var, rows: np.ndarray, part: Mapping[Space, tuple[int, int]]) -> np.ndarray:
        """A slice's rows of those of its unit, a view."""
        found = self._types[var]
        assert isinstance(found, Rows)
        return cut(rows, found.axis, found.factor, *part[found.space])


def part_of(unit: Unit, bounds: tuple[int, int]) -> dict[Space, tuple[int, int]]:
    """Where a slice's rows lie among those of its unit: of vertices, and of edges."""
    offsets = unit.edges.offsets
    return {"vertex": bounds, "edge": (int(offsets[bounds[0]]), int(offsets[bounds[1]]))}
