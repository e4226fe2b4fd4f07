"""`SplitModel`: a model as an ordered list of tasks, with the values that cross between them."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, Self, TypeVar

from dorylax.jax_internals import ClosedJaxpr, Var, variables
from dorylax.program.tasks.analysis import StepAnalysis
from dorylax.program.tasks.partition import partition
from dorylax.program.tasks.task import Interface, Task, closed_task, interfaces
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
        return cls(traced, ()).split_again(passes)

    def split_again(self, passes: tuple[str, ...]) -> Self:
        """Return the same step split according to these passes, which become the recorded ones."""
        wanted = {name: name in passes for name in ("settle", "hoist", "fuse")}
        tasks = partition(self.analysis, **wanted)
        return self._changed(tasks=tasks, passes=passes)

    def with_passes(self, passes: tuple[str, ...]) -> Self:
        """Return the same tasks with other recorded passes."""
        return self._changed(passes=passes)

    def with_tasks(self, tasks: tuple[Task, ...]) -> Self:
        """Return the same step with other tasks."""
        return self._changed(tasks=tasks)

    def _changed(self, **changes: Any) -> Self:
        changed = dataclasses.replace(self, **changes)
        changed.__dict__["analysis"] = self.analysis  # the step is the same
        return changed

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
        return closed_task(self.tasks[index], self.interfaces[index])
