"""Assigns each task of a program to a sweep over all units: a pure decision, independent of sizes.

A task that reads only its own unit's rows runs in the sweep that makes them. A task that reads rows through edges waits for
the next sweep, when they exist for all vertices. Sums over all units (gradients, sums per source) are complete after a
sweep. So a sweep does all possible work on a unit while it is in memory, and values used only there never exist for all
vertices.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Literal, final

from dorylax.jax_internals import Var, close, variables
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.operator import Operator
from dorylax.program.jaxpr.graph_operators import operator_of
from dorylax.program.jaxpr.simplify import live
from dorylax.program.rows.types import GraphArray, Rows, Summed
from dorylax.program.tasks.along_edges import dense_operands
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import When

Kind = Literal["driver", "stage", "pull", "push", "blocked", "output"]
OUTPUT = -1
"""Index of the output step, which is no task: it hands over the program's output, unit by unit."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A task in a schedule.

    Attributes:
        index: Number of the task in the program.
        kind: "driver" needs no rows; "stage" is row-wise; "pull" is a graph operator that reads neighbours' rows; "push" is
            one that adds a unit's rows to totals at their neighbours; "blocked" is a pull or push over all units, one block
            of columns after the other; "output" hands over rows.
        reads: Values that it reads, without the graph's arrays.
        writes: Results that other tasks read.
        in_order: Values with rows of which it reads its own unit's rows.
        at_random: Values that it reads through edges, which must exist for all vertices.
        adds: Whether it adds to totals at neighbours, which must exist for all vertices.
    """

    index: int
    kind: Kind
    reads: tuple[Var, ...]
    writes: tuple[Var, ...]
    in_order: tuple[Var, ...] = ()
    at_random: tuple[Var, ...] = ()
    adds: bool = False

    @property
    def through_edges(self) -> frozenset[Var]:
        """Values that it reads or writes through edges."""
        return frozenset(self.at_random) | frozenset(self.writes if self.adds else ())


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """One pass over all units.

    Attributes:
        before: Steps that need no unit ("driver"), or all of them ("blocked"), in order.
        steps: Steps that run on each unit, in order.
    """

    before: tuple[Step, ...]
    steps: tuple[Step, ...]

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
        symmetric: Whether every edge of the graph comes with its reverse.
        made: Number of the sweep that makes each value with rows.
        lasting: Values with rows that are made in this schedule and read after it.
        labelled: Numbers of tasks that only labelled vertices need (those in the training loss).
        of_labelled: Numbers of tasks that only need edges from labelled vertices.
    """

    program: SplitModel
    sweeps: tuple[Sweep, ...]
    symmetric: bool
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
        found = {var for sweep in self.sweeps for step in sweep.steps for var in step.at_random}
        return frozenset(found | self.pushed)

    @cached_property
    def kept(self) -> frozenset[Var]:
        """Values with rows that are made in this schedule and read in a later sweep, or after the schedule."""
        later = {var for var, made in self.made.items() if self.last_read.get(var, -1) > made}
        blocked = {
            var for sweep in self.sweeps for step in sweep.before if step.kind == "blocked" for var in step.writes
        }
        return frozenset(later | self.pushed | self.lasting | blocked | (self.whole & self.made.keys()))

    def streams(self, sweep: Sweep) -> tuple[Var, ...]:
        """Values with rows that the steps of a sweep read in order and do not make."""
        own = {var for step in sweep.steps if step.kind != "push" for var in step.writes}
        return tuple(dict.fromkeys(var for step in sweep.steps for var in step.in_order if var not in own))

    def outlive(self, sweep: Sweep) -> tuple[Var, ...]:
        """Values with rows that a sweep makes slice by slice and that a whole unit, or a later step, needs."""
        made = {var for step in sweep.steps if step.kind != "push" for var in step.writes if var in self.made}
        whole = {var for step in sweep.steps if step.kind in ("push", "output") for var in step.in_order}
        return tuple(var for var in self.made if var in made and (var in whole or var in self.kept))

    def reads_index(self, sweep: Sweep) -> bool:
        """Whether a sweep reads the neighbours of vertices."""
        return any(step.kind in ("pull", "push") for step in sweep.steps)

    def for_labelled(self, sweep: Sweep) -> bool:
        """Whether a sweep runs for labelled vertices only; rows kept of other vertices are 0."""
        steps = [*blocked_steps(sweep), *sweep.steps]
        return bool(steps) and all(step.index in self.labelled for step in steps)

    def from_labelled(self, sweep: Sweep) -> bool:
        """Whether a sweep traverses only the edges from labelled vertices."""
        pulls = [step for step in sweep.steps if step.kind != "stage"]
        return bool(pulls) and all(step.index in self.of_labelled for step in pulls)

    def operator(self, step: Step) -> Operator:
        """Return the graph operator of a step."""
        return operator_of(self.program.tasks[step.index].equations[0])


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

    def planned(blocked: frozenset[int]) -> Schedule:
        planner = _Planner(program, symmetric, blocked)
        for index, task in enumerate(program.tasks):
            if task.when == when:
                planner.place(index)
        if outputs:
            planner.hand_over(tuple(outputs))
        count = max([*planner.before, *planner.steps, 0]) + 1
        sweeps = tuple(Sweep(tuple(planner.before[k]), tuple(planner.steps[k])) for k in range(count))
        mine = frozenset(var for var in lasting if var in planner.made)
        return Schedule(program, sweeps, symmetric, planner.made, mine)

    # Decided without blocks, since the choice of summed rows affects the bits, and every plan must give the same bits.
    plain = planned(frozenset())
    labelled = {step.index for sweep in plain.sweeps if _for_labelled(plain, sweep) for step in sweep.steps}
    of_labelled = {
        step.index
        for sweep in plain.sweeps
        if _from_labelled(plain, sweep)
        for step in sweep.steps
        if step.kind == "pull"
    }
    found = planned(frozenset(blocked)) if blocked else plain
    return dataclasses.replace(found, labelled=frozenset(labelled), of_labelled=frozenset(of_labelled))


def blocked_steps(sweep: Sweep) -> list[Step]:
    """Return the steps of a sweep that run over all units, one block of columns after the other."""
    return [step for step in sweep.before if step.kind == "blocked"]


def _for_labelled(plain: Schedule, sweep: Sweep) -> bool:
    """Whether unlabelled vertices contribute nothing to any result of a sweep with pulls.

    False if the sweep reads or makes rows of edges, which are stored for all edges.
    """
    program, types = plain.program, plain.program.analysis.types
    nothing = program.analysis.without_unlabelled
    writes = {var for step in sweep.steps for var in step.writes}
    values = writes.union(*(step.reads for step in sweep.steps))
    return (
        all(step.kind == "stage" or (step.kind == "pull" and bool(step.at_random)) for step in sweep.steps)
        and plain.reads_index(sweep)
        and not any(isinstance(kind := types[var], Rows) and kind.space == "edge" for var in values)
        and not any(program.tasks[step.index].space == "edge" for step in sweep.steps)
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
        and all(step.kind == "pull" and plain.operator(step).name == gather_sum.name for step in pulls)
        and all(var in nothing for step in pulls for var in step.at_random)
        and not any(plain.program.tasks[step.index].space == "edge" for step in sweep.steps)
    )


class _Planner:
    def __init__(self, program: SplitModel, symmetric: bool, blocked: frozenset[int]) -> None:
        self._program, self._symmetric, self._blocked = program, symmetric, blocked
        self._types = program.analysis.types
        self._whole: dict[Var, int] = defaultdict(int)  # first sweep at which a value exists for all rows
        self._unit: dict[Var, int] = {}  # first sweep in which a unit's rows of a value exist
        self.before: dict[int, list[Step]] = defaultdict(list)
        self.steps: dict[int, list[Step]] = defaultdict(list)
        self.made: dict[Var, int] = {}

    def place(self, index: int) -> None:
        task, interface = self._program.tasks[index], self._program.interfaces[index]
        reads = tuple(var for var in interface.reads if not isinstance(self._types[var], GraphArray))
        if task.kind in ("driver", "sum"):
            self._at_once(Step(index, "driver", reads, interface.writes))
        elif task.kind == "stage":
            rows = tuple(var for var in reads if isinstance(self._types[var], Rows))
            self._over_units(Step(index, "stage", reads, interface.writes, rows))
        else:
            adds = self._adds(index)
            kind: Kind = "blocked" if index in self._blocked else "push" if adds else "pull"
            through = "own" if adds else "neighbour"
            operands = dense_operands(task.equations[0])
            step = Step(
                index,
                kind,
                reads,
                interface.writes,
                tuple(dict.fromkeys(var for var, role in operands if role != through)),
                tuple(dict.fromkeys(var for var, role in operands if role == through)),
                adds,
            )
            if kind == "blocked":
                self._at_once(step)
            else:
                self._over_units(step)

    def hand_over(self, outputs: tuple[Var, ...]) -> None:
        """Add the output step, after all tasks."""
        self._over_units(Step(OUTPUT, "output", outputs, (), outputs))

    def _adds(self, index: int) -> bool:
        equation = self._program.tasks[index].equations[0]
        operator = operator_of(equation)
        if operator.side(equation.params) == "in":
            return False
        return not self._symmetric or "edge" in operator.roles(equation.params)

    def _at_once(self, step: Step) -> None:
        number = max((self._whole[var] for var in step.reads), default=0)
        self.before[number].append(step)
        for var in step.writes:
            self._whole[var] = number
            if isinstance(self._types[var], Rows):
                self._unit[var] = self.made[var] = number

    def _over_units(self, step: Step) -> None:
        number = max((self._first(var, step) for var in step.reads), default=0)
        self.steps[number].append(step)
        for var in step.writes:
            self._whole[var] = number + 1
            if isinstance(self._types[var], Rows):
                self._unit[var] = number + 1 if step.kind == "push" else number
                self.made[var] = number

    def _first(self, var: Var, step: Step) -> int:
        if var in step.at_random or not isinstance(self._types[var], Rows):
            return self._whole[var]
        return self._unit.get(var, 0)


def kept_of_once(program: SplitModel) -> frozenset[Var]:
    """Return the values that tasks make once and that epoch tasks, or the program's outputs, read."""
    once = {
        var
        for index, task in enumerate(program.tasks)
        if task.when == "once"
        for var in program.interfaces[index].writes
    }
    later: set[Any] = {
        var
        for index, task in enumerate(program.tasks)
        if task.when == "epoch"
        for var in program.interfaces[index].reads
    }
    return frozenset(once & (later | set(variables(program.traced.step.jaxpr.outvars))))


def keys_of_once(program: SplitModel) -> dict[Var, str]:
    """Return a description of how each of `kept_of_once` is computed; equal texts mean equal values on the same data."""
    jaxpr = program.traced.step.jaxpr
    constants = iter(program.traced.constants)
    roles = {
        var: f"{entry.role} {id(next(constants)) if entry.role == 'constant' else entry.name}"
        for var, entry in zip(jaxpr.invars, program.traced.inputs, strict=True)
    }
    found = {}
    for var in kept_of_once(program):
        equations = live(jaxpr.eqns, [var])
        read = {atom for equation in equations for atom in variables(equation.invars)}
        inputs = [one for one in jaxpr.invars if one in read]
        found[var] = f"{', '.join(map(roles.__getitem__, inputs))}: {close(inputs, [var], equations).jaxpr}"
    return found
