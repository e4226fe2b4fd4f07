"""`SplitModel`: a model as an ordered list of tasks, with the values that cross between them."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Self, TypeVar

from dorylax.jax_internals import ClosedJaxpr, Var, close, variables
from dorylax.program.jaxpr.graph_operators import operator_of
from dorylax.program.tasks.analysis import StepAnalysis
from dorylax.program.tasks.partition import partition
from dorylax.program.tasks.task import Interface, Task, interfaces
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
        return self.changed(tasks=partition(self.analysis, settle=settle, hoist=hoist, fuse=fuse))

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
