"""The plan of an epoch: the tasks of a program as steps of an interval, with the data exchanged between intervals.

A program determines the values that each task reads and writes. A plan adds *how* each value is read:

- by the interval's own rows: the value stays with the interval;
- through edges of other intervals' rows: the graph server publishes it in a buffer and sends boundary rows to peers;
- summed per source: servers exchange partial sums.

A plan is independent of the graph and the cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

from dorylax.jax_internals import JaxprEqn, Var, is_literal, variables
from dorylax.ops.primitives.operator import Role
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_operators import operator_on_rows
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.program import Program
from dorylax.program.rows.types import Free, Rows, Summed
from dorylax.program.tasks.along_edges import dense_operands, is_push, read_along
from dorylax.program.tasks.label import task_label
from dorylax.program.tasks.task import Task
from dorylax.serverless.task import OperandSource, ResultTarget

Kind = Literal["stage", "gather", "push", "driver", "sum"]


@final
@dataclasses.dataclass(frozen=True)
class Publication:
    """A value that intervals read through edges.

    Attributes:
        var: The value, rows of vertices.
        direction: "in" for reads by sources of in-edges, "out" for reads by destinations of out-edges.
        constant: Whether the value is the same in every epoch.
        copied: Whether all reads of an interval in an epoch must return the same rows, because its backward pass or a second
            operator reads them again.
    """

    var: Var
    direction: Direction
    constant: bool
    copied: bool


@final
@dataclasses.dataclass(frozen=True)
class Operand:
    """A dense operand of a graph operator.

    Attributes:
        var: The value.
        role: Row that an entry reads: the row's own, the neighbor's, or the edge's.
        publication: Number in `Plan.publications` of the rows of neighbors; None for other roles.
    """

    var: Var
    role: Role
    publication: int | None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One task of the program, as each interval runs it.

    Attributes:
        index: Index of the task in the program.
        kind: "stage"; "gather" for graph operators that compute an interval's own rows or in-edges; "push" for graph
            operators that sum values of in-edges per source, first on the destinations' servers; "driver"; "sum" for the
            completion of sums over all rows.
        label: Label in the paper's vocabulary: GA, AV, SC, AE, ∇….
        reads: Values that the task reads, without the graph's arrays.
        writes: Values that the task writes for other tasks.
        space: Space of the written rows; None for the driver.
        on_worker: Whether a tensor worker runs the step instead of the graph server.
        sources: Source of each value that a stage reads, as in tensor tasks.
        targets: Target of each value that a stage writes, as in tensor tasks.
        operands: Dense operands of a graph operator.
        equations: Equations of the task.
        publishes: Numbers of the publications of its results.
        sums: Results sent to parameter servers: sums over rows, and values without rows that contribute to the gradient or
            to the model's new state.
        forget: Private values that no later step of the epoch reads.
    """

    index: int
    kind: Kind
    label: str
    reads: tuple[Var, ...]
    writes: tuple[Var, ...]
    space: Space | None
    on_worker: bool
    sources: tuple[OperandSource, ...]
    targets: tuple[ResultTarget, ...]
    operands: tuple[Operand, ...]
    equations: tuple[JaxprEqn, ...]
    publishes: tuple[int, ...]
    sums: tuple[Var, ...]
    forget: tuple[Var, ...]

    @property
    def operator(self) -> str:
        """Name of a graph operator's primitive."""
        return self.equations[0].primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        """Static parameters of a graph operator."""
        return self.equations[0].params

    @property
    def side(self) -> Direction:
        """Direction of the edges of the rows that a graph operator reads: "in" or "out"."""
        return operator_on_rows(self.operator).side(self.params)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The steps of every interval.

    Attributes:
        program: Program of the plan.
        once: Steps before training.
        epoch: Steps of an epoch, in the order of execution by an interval.
        publications: Values that intervals read through edges.
        before: Tasks of the driver independent of rows, run once per weight version and epoch.
        after: Tasks of the driver that finish an interval's sums.
        constants: Values that are the same in every epoch: data, and results of `once` steps.
    """

    program: Program
    once: tuple[Step, ...]
    epoch: tuple[Step, ...]
    publications: tuple[Publication, ...]
    before: tuple[Task, ...]
    after: tuple[Task, ...]
    constants: frozenset[Var]

    @classmethod
    def of(cls, program: Program, *, workers: bool = True) -> Plan:
        """Return the plan of a program.

        Without a loss, an epoch is an evaluation, and rows of the output stay with the visit.

        Args:
            program: The program.
            workers: Whether tensor workers run the stages that the program intends for them.

        Raises:
            SplitError: The loss does not depend on the vertices.
        """
        return _Planner(program, workers=workers).plan()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, starting with those before training."""
        return (*self.once, *self.epoch)

    @property
    def publications_of_once(self) -> tuple[int, ...]:
        """Numbers of the publications that only steps before training read."""
        later = {operand.publication for step in self.epoch for operand in step.operands}
        return tuple(number for number in range(len(self.publications)) if number not in later)

    @property
    def rows_of_once(self) -> frozenset[Var]:
        """Values in `constants` that have rows and are read only by steps before training."""
        program = self.program
        later = {var for step in self.epoch for var in step.reads}
        later.update(variables(program.traced.step.jaxpr.outvars))
        return frozenset(var for var in self.constants - later if isinstance(program.analysis.types[var], Rows))

    @property
    def stages_with_sums(self) -> tuple[int, ...]:
        """Indices of the tasks that push sums over rows, in order."""
        return tuple(step.index for step in self.epoch if step.sums)


class _Planner:
    def __init__(self, program: Program, *, workers: bool) -> None:
        self._program, self._workers = program, workers
        self._types = program.analysis.types
        traced = program.traced
        entries = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
        self._data = {var for var, entry in entries if entry.of_data}
        params = [var for var, entry in entries if entry.role == "param"]
        self._leaves = {var: leaf for leaf, var in enumerate(params)}
        self._publications: dict[tuple[Var, Direction], Publication] = {}
        self._pushed: set[Var] = set()

    def plan(self) -> Plan:
        self._check_outputs()
        program = self._program
        pairs = list(enumerate(program.tasks))
        before, after, between = self._driver()
        constants = set(self._data)
        for k, task in pairs:
            if task.when == "once":
                constants.update(program.interfaces[k].writes)
        for _, task in pairs:
            if task.kind == "graph":
                self._publish(task, constants)
        numbers = {key: number for number, key in enumerate(self._publications)}
        last_read: dict[Var, int] = {}
        for k, interface in enumerate(program.interfaces):
            if k not in before and k not in after:
                last_read.update(dict.fromkeys(interface.reads, k))
        outputs = variables(program.traced.step.jaxpr.outvars)
        last_read.update((var, len(pairs)) for var in outputs if isinstance(self._types[var], Rows))
        self._pushed = {var for k in after for var in program.interfaces[k].reads}
        self._pushed.update(outputs)
        self._pushed.update(self._statistics() - constants)
        steps: dict[str, list[Step]] = {"once": [], "epoch": []}
        for k, task in pairs:
            if task.kind != "driver" or k in between or task.when == "once":
                forget = self._forgotten(k, last_read, self._data if task.when == "once" else constants)
                steps[task.when].append(self._step(k, task, numbers, forget))
        return Plan(
            program=program,
            once=tuple(steps["once"]),
            epoch=tuple(steps["epoch"]),
            publications=tuple(self._publications.values()),
            before=tuple(program.tasks[k] for k in before),
            after=tuple(program.tasks[k] for k in after),
            constants=frozenset(constants),
        )

    def _statistics(self) -> set[Var]:
        """Return the values without rows that are computed from rows and contribute to new state."""
        step = self._program.traced.step.jaxpr
        outputs = zip(self._program.traced.outputs, step.outvars, strict=True)
        needed = set(variables(atom for output, atom in outputs if output.role == "state"))
        statistics: set[Var] = set()
        for equation in reversed(step.eqns):
            made = needed.intersection(equation.outvars)
            if all(isinstance(self._types[var], Free) for var in variables(equation.invars)):
                needed.update(variables(equation.invars) if made else ())
            else:
                statistics |= made
        return statistics

    def _check_outputs(self) -> None:
        traced = self._program.traced
        for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
            if output.role in ("state", "input_gradient", "output") or is_literal(atom):
                continue
            found = self._types[atom]
            if not (isinstance(found, Summed) or (isinstance(found, Free) and found.zero)):
                raise SplitError(
                    f"{output.role} {output.name} of {traced.name} does not depend on any vertex: a pipeline adds up what "
                    "intervals contribute. Leave it out of the model's outputs"
                )

    def _driver(self) -> tuple[list[int], list[int], list[int]]:
        """Return the driver's tasks of an epoch: before all rows, after all rows, and (rarely) in between."""
        program = self._program
        traced = program.traced
        entries = zip(traced.step.jaxpr.invars, traced.inputs, strict=True)
        free = {var for var, entry in entries if isinstance(self._types[var], Free) or entry.role == "constant"}
        for k, task in enumerate(program.tasks):
            if task.when == "once" and task.kind in ("driver", "sum"):
                free.update(program.interfaces[k].writes)
        before: list[int] = []
        rest: list[int] = []
        for k, task in enumerate(program.tasks):
            if task.kind != "driver" or task.when == "once":
                continue
            if set(program.interfaces[k].reads) <= free:
                before.append(k)
                free.update(program.interfaces[k].writes)
            else:
                rest.append(k)
        read_by_rows = {
            var
            for k, task in enumerate(program.tasks)
            if task.kind != "driver" and task.when == "epoch"
            for var in program.interfaces[k].reads
        }
        between: list[int] = []
        for k in reversed(rest):
            if not read_by_rows.isdisjoint(program.interfaces[k].writes):
                between.append(k)
                read_by_rows.update(program.interfaces[k].reads)
        after = [k for k in rest if k not in between]
        return before, after, between[::-1]

    def _publish(self, task: Task, constants: set[Var]) -> None:
        equation = task.equations[0]
        side, through = read_along(equation)
        for var, role in dense_operands(equation):
            if role != through:
                continue
            old = self._publications.get((var, side))
            again = old is not None or task.phase == "backward"
            forward = var not in self._program.analysis.backward
            copied = var not in constants and side == "in" and forward and again
            self._publications[var, side] = Publication(var, side, var in constants, copied)

    def _forgotten(self, index: int, last_read: Mapping[Var, int], lasting: set[Var]) -> list[Var]:
        interface = self._program.interfaces[index]
        # Values without rows that are computed once are small, and the driver may read them in every epoch.
        once = self._program.tasks[index].when == "once"
        return [
            var
            for var in dict.fromkeys((*interface.reads, *interface.writes))
            if var not in lasting
            and last_read.get(var, index) == index
            and (isinstance(self._types[var], Rows) or not once)
        ]

    def _step(
        self, index: int, task: Task, numbers: Mapping[tuple[Var, Direction], int], forget: Sequence[Var]
    ) -> Step:
        program = self._program
        interface = program.interfaces[index]
        operands: list[Operand] = []
        kind: Kind = task.kind if task.kind in ("driver", "sum") else "stage"
        if task.kind == "graph":
            equation = task.equations[0]
            side, through = read_along(equation)
            kind = "push" if is_push(equation) else "gather"
            operands = [
                Operand(var, role, numbers[var, side] if role == through else None)
                for var, role in dense_operands(equation)
            ]
        publishes = [number for (var, _), number in numbers.items() if var in interface.writes]
        return Step(
            index=index,
            kind=kind,
            label=task_label(program, index),
            reads=tuple(_without_graph(interface.reads, self._types)),
            writes=interface.writes,
            space=task.space,
            on_worker=self._workers and task.kind == "stage" and task.place == "worker",
            sources=tuple(map(self._source, interface.reads)) if kind == "stage" else (),
            targets=tuple(map(self._target, interface.writes)) if kind == "stage" else (),
            operands=tuple(operands),
            equations=task.equations,
            publishes=tuple(publishes),
            sums=tuple(v for v in interface.writes if v in self._pushed and not isinstance(self._types[v], Rows)),
            forget=tuple(forget),
        )

    def _source(self, var: Var) -> OperandSource:
        found = self._types[var]
        if isinstance(found, Rows):
            return OperandSource("rows", found.axis, found.factor, zero=var in self._program.analysis.weighted)
        leaf = self._leaves.get(var)
        return OperandSource("free") if leaf is None else OperandSource("weights", leaf=leaf)

    def _target(self, var: Var) -> ResultTarget:
        found = self._types[var]
        if isinstance(found, Rows):
            return ResultTarget("rows", found.axis, found.factor)
        return ResultTarget("sums" if isinstance(found, Summed) else "free")


def _without_graph(values: Iterable[Var], types: Mapping[Var, Any]) -> list[Var]:
    return [var for var in values if isinstance(types[var], Free | Rows | Summed)]
