"""Assigns each task of a program to a sweep over all units: a pure decision, independent of sizes.

A task that reads only its own unit's rows runs in the sweep that makes them. A task that reads rows through edges waits for
the next sweep, when they exist for all vertices. Sums over all units (gradients, sums per source) are complete after a
sweep. So a sweep does all possible work on a unit while it is in memory, and values used only there never exist for all
vertices.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import final

from dorylax.jax_internals import Var
from dorylax.ops.primitives.linear import gather_sum
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import Step, lower
from dorylax.program.tasks.task import When

OUTPUT = -1
"""Index of the output step, which is no task: it hands over the program's output, unit by unit."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """One pass over all units.

    Attributes:
        before: Steps that need no unit, or all of them (`blocked`), in order.
        steps: Steps that run on each unit, in order.
    """

    before: tuple[Step, ...]
    steps: tuple[Step, ...]

    @property
    def blocked(self) -> list[Step]:
        """Graph operators over all units, one block of columns after the other."""
        return [step for step in self.before if step.kind in ("gather", "push")]

    @cached_property
    def every(self) -> tuple[Step, ...]:
        """All steps."""
        return (*self.before, *self.steps)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """The sweeps of a program's tasks before training, or of an epoch.

    Attributes:
        program: The program.
        sweeps: The sweeps in order; the last may have no steps.
        made: Number of the sweep that makes each value with rows.
        lasting: Values with rows that are made in this schedule and read after it.
        labelled: Numbers of tasks that only labelled vertices need (those in the training loss).
        of_labelled: Numbers of tasks that only need edges from labelled vertices.
    """

    program: SplitModel
    sweeps: tuple[Sweep, ...]
    made: dict[Var, int]
    lasting: frozenset[Var]
    labelled: frozenset[int] = frozenset()
    of_labelled: frozenset[int] = frozenset()

    @cached_property
    def last_read(self) -> dict[Var, int]:
        """The last sweep that reads each value."""
        found: dict[Var, int] = {}
        for number, sweep in enumerate(self.sweeps):
            for step in sweep.every:
                found.update(dict.fromkeys(step.reads, number))
        return found

    @cached_property
    def pushed(self) -> frozenset[Var]:
        """Values that are totals at neighbours."""
        return frozenset(
            var for sweep in self.sweeps for step in sweep.steps if step.kind == "push" for var in step.writes
        )

    @cached_property
    def whole(self) -> frozenset[Var]:
        """Values that must be in memory for all vertices while a sweep reads them or adds to them."""
        found = {var for sweep in self.sweeps for step in sweep.steps for var in step.through_edges}
        return frozenset(found | self.pushed)

    @cached_property
    def kept(self) -> frozenset[Var]:
        """Values with rows that are made in this schedule and read in a later sweep, or after the schedule."""
        later = {var for var, made in self.made.items() if self.last_read.get(var, -1) > made}
        blocked = {var for sweep in self.sweeps for step in sweep.blocked for var in step.writes}
        return frozenset(later | self.pushed | self.lasting | blocked | (self.whole & self.made.keys()))

    def streams(self, sweep: Sweep) -> tuple[Var, ...]:
        """Values with rows that the steps of a sweep read in order and do not make."""
        own = {var for step in sweep.steps if step.kind != "push" for var in step.writes}
        return tuple(dict.fromkeys(var for step in sweep.steps for var in step.own_rows if var not in own))

    def outlive(self, sweep: Sweep) -> tuple[Var, ...]:
        """Values with rows that a sweep makes slice by slice and that a whole unit, or a later step, needs."""
        made = {var for step in sweep.steps if step.kind != "push" for var in step.writes if var in self.made}
        whole = {var for step in sweep.steps if step.kind in ("push", "output") for var in step.own_rows}
        return tuple(var for var in self.made if var in made and (var in whole or var in self.kept))

    def reads_index(self, sweep: Sweep) -> bool:
        """Whether a sweep reads the neighbours of vertices."""
        return any(step.kind in ("gather", "push") for step in sweep.steps)

    def for_labelled(self, sweep: Sweep) -> bool:
        """Whether a sweep runs for labelled vertices only; rows kept of other vertices are 0."""
        steps = [*sweep.blocked, *sweep.steps]
        return bool(steps) and all(step.index in self.labelled for step in steps)

    def from_labelled(self, sweep: Sweep) -> bool:
        """Whether a sweep traverses only the edges from labelled vertices."""
        pulls = [step for step in sweep.steps if step.kind != "stage"]
        return bool(pulls) and all(step.index in self.of_labelled for step in pulls)


def schedule(
    program: SplitModel,
    when: When,
    *,
    symmetric: bool,
    blocked: Collection[int] = (),
    lasting: Collection[Var] = (),
    outputs: Sequence[Var] = (),
) -> Schedule:
    """Return the sweeps of the tasks that run once, or in every epoch.

    Args:
        program: The program.
        when: "once" or "epoch".
        symmetric: Whether every edge comes with its reverse, so that rows by destination serve as rows by source. Otherwise
            operators over out-edges add up at the sources.
        blocked: Numbers of tasks that traverse edges one block of columns at a time.
        lasting: Values that are read after the schedule.
        outputs: Values whose rows are handed over.
    """
    steps = [step for step in lower(program, "symmetric" if symmetric else "directed").steps if step.when == when]
    if outputs:
        steps.append(Step(OUTPUT, "output", when, "vertex", tuple(outputs), ()))

    def planned(blocked: Collection[int]) -> Schedule:
        planner = _Planner(program.analysis.types, blocked)
        for step in steps:
            planner.place(step)
        count = max([*planner.before, *planner.steps, 0]) + 1
        sweeps = tuple(Sweep(tuple(planner.before[k]), tuple(planner.steps[k])) for k in range(count))
        mine = frozenset(var for var in lasting if var in planner.made)
        return Schedule(program, sweeps, planner.made, mine)

    # Decided without blocks, since the choice of summed rows affects the bits, and every plan must give the same bits.
    plain = planned(())
    labelled = {step.index for sweep in plain.sweeps if _for_labelled(plain, sweep) for step in sweep.steps}
    of_labelled = {
        step.index
        for sweep in plain.sweeps
        if _from_labelled(plain, sweep)
        for step in sweep.steps
        if step.kind == "gather"
    }
    found = planned(blocked) if blocked else plain
    return dataclasses.replace(found, labelled=frozenset(labelled), of_labelled=frozenset(of_labelled))


def _for_labelled(plain: Schedule, sweep: Sweep) -> bool:
    """Whether unlabelled vertices contribute nothing to any result of a sweep with pulls.

    False if the sweep reads or makes rows of edges, which are stored for all edges.
    """
    program, types = plain.program, plain.program.analysis.types
    nothing = program.analysis.without_unlabelled
    writes = {var for step in sweep.steps for var in step.writes}
    values = writes.union(*(step.reads for step in sweep.steps))
    return (
        all(step.kind == "stage" or (step.kind == "gather" and bool(step.through_edges)) for step in sweep.steps)
        and plain.reads_index(sweep)
        and not any(isinstance(kind := types[var], Rows) and kind.space == "edge" for var in values)
        and not any(step.space == "edge" for step in sweep.steps)
        and all(var in nothing for var in plain.outlive(sweep))
        and all(var in nothing for var in writes if isinstance(types[var], Summed))
    )


def _from_labelled(plain: Schedule, sweep: Sweep) -> bool:
    """Whether a sweep traverses edges only to sum neighbours' rows that are 0 at unlabelled vertices."""
    nothing = plain.program.analysis.without_unlabelled
    pulls = [step for step in sweep.steps if step.kind != "stage"]
    return (
        bool(pulls)
        and not _for_labelled(plain, sweep)
        and all(step.kind == "gather" and step.operator == gather_sum.primitive.name for step in pulls)
        and all(var in nothing for step in pulls for var in step.through_edges)
        and not any(step.space == "edge" for step in sweep.steps)
    )


class _Planner:
    def __init__(self, types: Mapping[Var, RowType], blocked: Collection[int]) -> None:
        self._types, self._blocked = types, blocked
        self._whole: dict[Var, int] = defaultdict(int)  # first sweep at which a value exists for all rows
        self._unit: dict[Var, int] = {}  # first sweep in which a unit's rows of a value exist
        self.before: dict[int, list[Step]] = defaultdict(list)
        self.steps: dict[int, list[Step]] = defaultdict(list)
        self.made: dict[Var, int] = {}

    def place(self, step: Step) -> None:
        """Add the next step to the earliest sweep in which its inputs exist."""
        if step.kind in ("driver", "sum") or step.index in self._blocked:
            number = max((self._whole[var] for var in step.reads), default=0)
            self.before[number].append(step)
            whole = unit = number
        else:
            number = max((self._first(var, step) for var in step.reads), default=0)
            self.steps[number].append(step)
            whole = number + 1
            unit = whole if step.kind == "push" else number
        for var in step.writes:
            self._whole[var] = whole
            if isinstance(self._types[var], Rows):
                self._unit[var], self.made[var] = unit, number

    def _first(self, var: Var, step: Step) -> int:
        if var in step.through_edges or not isinstance(self._types[var], Rows):
            return self._whole[var]
        return self._unit.get(var, 0)
