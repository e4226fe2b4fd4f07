"""`SplitModel`: a model as an ordered list of tasks, with what crosses between them."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, Self, TypeVar

from dorylax.jax_internals import ClosedJaxpr
from dorylax.program.tasks.analysis import StepAnalysis
from dorylax.program.tasks.partition import partition
from dorylax.program.tasks.task import Interface, Task, closed_task, interfaces
from dorylax.program.tracing.traced import Traced

AnySplit = TypeVar("AnySplit", bound="SplitModel")
"""What a pass is given, and gives back: users hold a `Program`, and get one."""


@dataclasses.dataclass(frozen=True, eq=False)
class SplitModel:
    """A traced model, split: all that passes, estimates, artefacts and pipelines read.

    Attributes:
        traced: what is computed: inputs, outputs, equations.
        tasks: who computes it, in an order in which tasks may run.
        passes: the passes that were applied, in order.
    """

    traced: Traced
    tasks: tuple[Task, ...]
    passes: tuple[str, ...] = ()

    @classmethod
    def of(cls, traced: Traced, passes: tuple[str, ...] = ()) -> Self:
        """Splits a traced model.

        Args:
            traced: the model.
            passes: the passes applied so far, of which the split heeds "settle", "hoist" and "fuse".

        Raises:
            SplitError: its gradient mixes rows.
        """
        return cls(traced, ()).split_again(passes)

    def split_again(self, passes: tuple[str, ...]) -> Self:
        """The same step split as these passes, on record from now on, ask for."""
        wanted = {name: name in passes for name in ("settle", "hoist", "fuse")}
        tasks = partition(self.analysis, **wanted)
        return self._changed(tasks=tasks, passes=passes)

    def with_passes(self, passes: tuple[str, ...]) -> Self:
        """The same tasks, with other passes on record."""
        return self._changed(passes=passes)

    def with_tasks(self, tasks: tuple[Task, ...]) -> Self:
        """The same step in other tasks."""
        return self._changed(tasks=tasks)

    def _changed(self, **changes: Any) -> Self:
        changed = dataclasses.replace(self, **changes)
        changed.__dict__["analysis"] = self.analysis  # of the step, which is the same
        return changed

    @cached_property
    def analysis(self) -> StepAnalysis:
        """What is known about the values of the step."""
        return StepAnalysis(self.traced)

    @cached_property
    def interfaces(self) -> list[Interface]:
        """What each task reads and writes, in the order of the tasks."""
        return interfaces(self.tasks, self.traced.step.jaxpr.outvars)

    def function_of(self, index: int) -> ClosedJaxpr:
        """Task `index` as a function of what it reads, giving what it writes; shapes are symbolic."""
        return closed_task(self.tasks[index], self.interfaces[index])
