"""`SplitModel`: a model cut into an ordered list of tasks, with the values that cross between them.

There is one graph task per graph operator, and between them stages of row-wise arithmetic.

A value's level is the number of graph operators and completed sums over all rows on the longest path to it. All row-wise
equations of one space and one level form one stage, so there are as few stages as possible: a stage reads only earlier
stages, graph operators and sums. One task completes all sums of one level, so that intervals meet once for them. Cheap
values without rows, and rows that are all alike, are copied into every stage that reads them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from functools import cached_property
from typing import Self, TypeVar

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, close, is_literal, variables
from dorylax.program.jaxpr.graph_operators import is_global_sum, is_graph_operator, operator_of, travelling
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows.types import Rows, Summed
from dorylax.program.tasks.analysis import StepAnalysis
from dorylax.program.tasks.task import Interface, Task, When, interfaces, phased, tidy
from dorylax.program.tracing.traced import Input, InputRole, Traced

AnySplit = TypeVar("AnySplit", bound="SplitModel")
"""Type of a pass's argument and result: passes return a `Program` for a `Program`."""


@dataclasses.dataclass(frozen=True, eq=False)
class SplitModel:
    """A traced model split into tasks, as used by passes, estimates, artefacts and pipelines.

    Attributes:
        traced: Inputs, outputs and equations of the step.
        tasks: Its tasks, in a valid order of execution.
        passes: Applied passes, in order.
    """

    traced: Traced
    tasks: tuple[Task, ...]
    passes: tuple[str, ...] = ()

    @classmethod
    def of(cls, traced: Traced, passes: tuple[str, ...] = ()) -> Self:
        """Split a traced model.

        Args:
            traced: The model.
            passes: Passes applied so far; "settle", "hoist" and "fuse" affect the split.

        Raises:
            SplitError: The model's gradient mixes rows.
        """
        return cls(traced, (), passes).split_again()

    def split_again(self) -> Self:
        """Return the same step split into other tasks, according to the recorded passes."""
        settle, hoist, fuse = (name in self.passes for name in ("settle", "hoist", "fuse"))
        return self.changed(tasks=_partition(self.analysis, settle=settle, hoist=hoist, fuse=fuse))

    def changed(self, *, tasks: tuple[Task, ...] | None = None, passes: tuple[str, ...] | None = None) -> Self:
        """Return the same step with other tasks, or other recorded passes."""
        found = dataclasses.replace(
            self, tasks=self.tasks if tasks is None else tasks, passes=self.passes if passes is None else passes
        )
        found.__dict__["analysis"] = self.analysis  # the step is the same
        return found

    @cached_property
    def analysis(self) -> StepAnalysis:
        """Analyses of the values of the step."""
        return StepAnalysis(self.traced)

    @cached_property
    def interfaces(self) -> list[Interface]:
        """Values that each task reads and writes, in the order of the tasks."""
        return interfaces(self.tasks, self.traced.step.jaxpr.outvars)

    @cached_property
    def kept_of_once(self) -> tuple[Var, ...]:
        """Values that tasks make once and that epoch tasks, or the program's outputs, read."""
        once = {var for task in self.tasks if task.when == "once" for var in task.defined}
        read = [var for task in self.tasks if task.when == "epoch" for var in task.read]
        return tuple(var for var in dict.fromkeys((*read, *variables(self.traced.step.jaxpr.outvars))) if var in once)

    @cached_property
    def read_inputs(self) -> dict[Var, Input]:
        """Inputs that tasks or outputs read."""
        read = {var for task in self.tasks for var in task.read}
        read.update(variables(self.traced.step.jaxpr.outvars))
        entries = zip(self.traced.step.jaxpr.invars, self.traced.inputs, strict=True)
        return {var: entry for var, entry in entries if var in read}

    def reads_edges(self, *roles: InputRole) -> bool:
        """Whether tasks or outputs read an input of edges with one of these roles."""
        return any(entry.space == "edge" and entry.role in roles for entry in self.read_inputs.values())

    def function_of(self, index: int) -> ClosedJaxpr:
        """Return task `index` as a function from the values it reads to the values it writes; shapes are symbolic."""
        interface = self.interfaces[index]
        return close(interface.reads, interface.writes, self.tasks[index].equations)

    def label(self, index: int) -> str:
        """Return a task's name in the vocabulary of Dorylus: GA, SC, AV, AE, with ∇ in the backward pass.

        Thorpe et al., "Dorylus: Affordable, Scalable, and Accurate GNN Training with Distributed CPU Servers and Serverless
        Threads", OSDI 2021: GA gathers along edges into vertices, SC scatters vertices' values to edges, AV is arithmetic
        per vertex, AE per edge; `AV+∇AV` are both passes in one stage. Names describe a task's work: a gather in the
        backward pass is ∇GA, whichever operator it differentiates. Our additions: GS is a sum over all vertices or edges
        within a model, and graph operators that only count edges are "count". The driver's tasks are "setup" (once), "begin"
        and "end" (of an epoch), and "between" if they compute with completed sums, or with parts of sums still to complete.
        """
        task = self.tasks[index]
        if task.kind == "driver":
            if task.when == "once":
                return "setup"
            written = {var for other in self.tasks[:index] if other.when == "epoch" for var in other.defined}
            if written.isdisjoint(task.read):
                return "begin"
            needed = {var for other in self.tasks[index + 1 :] for var in other.read}
            return "end" if needed.isdisjoint(task.defined) else "between"
        if task.kind == "graph":
            label: str = operator_of(task.equations[0]).label
            if label == "count":
                return label
        elif task.kind == "sum":
            label = "GS"
        else:
            label = "AE" if task.space == "edge" else "AV"
        return {"forward": label, "backward": f"∇{label}", "both": f"{label}+∇{label}"}[task.phase]


def _partition(analysis: StepAnalysis, *, settle: bool, hoist: bool, fuse: bool) -> tuple[Task, ...]:
    """Cut a step into tasks, in a valid order of execution.

    Args:
        analysis: Analysis of the step.
        settle: Whether rows that depend only on data, and that graph operators read along edges, are computed once.
        hoist: Whether graph operators that depend only on data, and the equations around them, run once.
        fuse: Whether forward and backward arithmetic of one level form one stage.
    """
    return _Partition(analysis, _once(analysis, settle=settle, hoist=hoist), fuse).tasks()


# The parts of a level, in their order of execution: arithmetic on completed sums, stages, arithmetic on parts of sums before
# they are completed, sums, and the graph operators that lead to the next level.
_KINDS = ("driver", "vertex", "edge", "parts", "sum", "graph")
_DRIVER, _VERTEX, _EDGE, _PARTS, _SUM, _GRAPH = range(len(_KINDS))


@dataclasses.dataclass(frozen=True, order=True)
class _Slot:
    """Position of an equation in the order of execution."""

    when: int  # 0 once, 1 every epoch
    part: int  # 0 driver at the beginning, 1 rows, 2 driver at the end
    level: int
    kind: int  # of _KINDS
    phase: int  # 0 forward (and both), 1 backward
    index: int  # of the graph operator


class _Partition:
    def __init__(self, analysis: StepAnalysis, once: frozenset[Var], fuse: bool) -> None:
        self._analysis = analysis
        self._equations = analysis.traced.step.jaxpr.eqns
        self._floating = [analysis.floats(equation) for equation in self._equations]
        self._maker = {var: k for k, equation in enumerate(self._equations) for var in equation.outvars}
        self._once = once
        self._fuse = fuse
        self._levels: dict[Var, int] = {}

    def tasks(self) -> tuple[Task, ...]:
        members: dict[_Slot, list[int]] = defaultdict(list)
        for k, equation in enumerate(self._equations):
            self._set_level(equation)
            if not self._floating[k]:
                members[self._slot(k, equation)].append(k)
        for var in self._materialised():
            members[self._uniform_slot(var)].append(self._maker[var])
        outputs = variables(self._analysis.traced.step.jaxpr.outvars)
        end = _Slot(1, 2, 0, _DRIVER, 0, 0)
        members[end].extend(
            self._maker[var]
            for var in outputs
            if var in self._maker
            and self._floating[self._maker[var]]
            and not isinstance(self._analysis.types[var], Rows)
        )
        tasks = [self._task(slot, members[slot]) for slot in sorted(members)]
        return phased(tidy(tasks, outputs), outputs, self._analysis.backward)

    def _set_level(self, equation: JaxprEqn) -> None:
        once = self._is_once(equation)
        read = [var for var in variables(equation.invars) if once or var not in self._once]
        level = max((self._levels.get(var, 0) for var in read), default=0)
        level += is_graph_operator(equation) or is_global_sum(equation)
        for var in equation.outvars:
            self._levels[var] = level

    def _is_once(self, equation: JaxprEqn) -> bool:
        return all(var in self._once for var in equation.outvars)

    def _slot(self, k: int, equation: JaxprEqn) -> _Slot:
        when = 0 if self._is_once(equation) else 1
        level = self._levels[equation.outvars[0]] if equation.outvars else 0
        phase = int(any(var in self._analysis.backward for var in equation.outvars))
        if is_graph_operator(equation):
            return _Slot(when, 1, level - 1, _GRAPH, phase, k)
        if is_global_sum(equation):
            return _Slot(when, 1, level - 1, _SUM, 0 if self._fuse else phase, 0)
        rows = [var for var in variables(equation.invars) if isinstance(self._analysis.types[var], Rows)]
        if rows:
            space = _space(self._analysis, rows[0])
            return _Slot(when, 1, level, _VERTEX if space == "vertex" else _EDGE, 0 if self._fuse else phase, 0)
        part = any(isinstance(self._analysis.types[var], Summed) for var in equation.outvars)
        if not any(var in self._between for var in equation.outvars):
            return _Slot(when, 2 if part or level else 0, 0, _DRIVER, 0, 0)
        if not part and not level:
            return _Slot(when, 0, 0, _DRIVER, 0, 0)
        return _Slot(when, 1, level, _PARTS if part else _DRIVER, 0, 0)

    @cached_property
    def _between(self) -> frozenset[Var]:
        """Values without rows that stages, graph operators and completed sums need before the end of the epoch."""
        found: set[Var] = set()
        types = self._analysis.types
        for equation in reversed(self._equations):
            operands = variables(equation.invars)
            needs = is_graph_operator(equation) or is_global_sum(equation)
            needs |= any(isinstance(types[var], Rows) for var in (*operands, *equation.outvars))
            if needs or any(var in found for var in equation.outvars):
                found.update(var for var in operands if not isinstance(types[var], Rows))
        return frozenset(found)

    def _materialised(self) -> list[Var]:
        """Rows that are all alike but that a graph operator or an output reads, so that a stage must write them."""
        readers = [atom for equation in self._equations if is_graph_operator(equation) for atom in equation.invars]
        return [
            var
            for var in dict.fromkeys(variables([*readers, *self._analysis.traced.step.jaxpr.outvars]))
            if var in self._maker and self._floating[self._maker[var]] and isinstance(self._analysis.types[var], Rows)
        ]

    def _uniform_slot(self, var: Var) -> _Slot:
        kind = _VERTEX if _space(self._analysis, var) == "vertex" else _EDGE
        once = var in self._once
        return _Slot(0 if once else 1, 1, self._levels[var], kind, 0, 0)

    def _task(self, slot: _Slot, members: list[int]) -> Task:
        own = set(members)
        # Include the floating equations that they read.
        stack = list(members)
        while stack:
            for atom in self._equations[stack.pop()].invars:
                maker = None if is_literal(atom) else self._maker.get(atom)
                if maker is not None and maker not in own and self._floating[maker] and slot.kind not in (_GRAPH, _SUM):
                    own.add(maker)
                    stack.append(maker)
        equations = tuple(self._equations[k] for k in sorted(own))
        when: When = "epoch" if slot.when else "once"
        if slot.kind in (_DRIVER, _PARTS):
            return Task("driver", when, "forward", slot.level, "driver", None, equations)
        if slot.kind == _SUM:
            return Task("sum", when, "forward", slot.level, "graph server", None, equations)
        if slot.kind == _GRAPH:
            space = _space(self._analysis, equations[0].outvars[0])
            return Task("graph", when, "forward", slot.level, "graph server", space, equations)
        return Task(
            "stage", when, "forward", slot.level, "worker", "edge" if slot.kind == _EDGE else "vertex", equations
        )


def _space(analysis: StepAnalysis, var: Var) -> Space:
    row_type = analysis.types[var]
    if not isinstance(row_type, Rows):
        raise TypeError(f"{var} has no rows")
    return row_type.space


def _once(analysis: StepAnalysis, *, settle: bool, hoist: bool) -> frozenset[Var]:
    """Return constant values to compute once: those on a path to rows that travel, through an operator, or both."""
    equations = analysis.traced.step.jaxpr.eqns
    constant = [
        equation
        for equation in equations
        if equation.outvars and all(var in analysis.constant for var in equation.outvars)
    ]
    chosen: set[Var] = set()
    for equation in constant if hoist else ():
        meets = is_graph_operator(equation) or is_global_sum(equation)
        if meets or any(not is_literal(a) and a in chosen for a in equation.invars):
            chosen.update(equation.outvars)
    for equation in filter(is_graph_operator, equations if settle else ()):
        chosen.update(analysis.constant.intersection(travelling(equation)))
    for equation in reversed(constant):
        if any(var in chosen for var in equation.outvars):
            chosen.update(equation.outvars)  # all of them, since an equation runs either once or in every epoch
            chosen.update(variables(equation.invars))
    return frozenset(chosen)
