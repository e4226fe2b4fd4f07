"""`Program`: a model as an ordered list of tasks, with what crosses between them."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final

from dorylax.jax_internals import ClosedJaxpr
from dorylax.program.tasks.facts import Facts
from dorylax.program.tasks.partition import partition
from dorylax.program.tasks.task import Interface, Task, closed_task, interfaces
from dorylax.program.tracing.traced import Traced

if TYPE_CHECKING:
    from dorylax.program.artefact.export import StageSet
    from dorylax.program.single.function import ProgramFunction
    from dorylax.program.view.cost import ProgramCost

Gathered = Literal["float32", "bfloat16"]
"""How one machine stores rows that are summed over neighbours."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A traced model, split.

    Attributes:
        traced: what is computed: inputs, outputs, equations.
        tasks: who computes it, in an order in which tasks may run.
        passes: the passes that were applied, in order.
    """

    traced: Traced
    tasks: tuple[Task, ...]
    passes: tuple[str, ...] = ()

    @classmethod
    def of(cls, traced: Traced, passes: tuple[str, ...] = ()) -> Program:
        """Splits a traced model.

        Args:
            traced: the model.
            passes: the passes applied so far, of which the split heeds "hoist" and "fuse".

        Raises:
            SplitError: its gradient mixes rows.
        """
        return cls(traced, ()).split_again(passes)

    def split_again(self, passes: tuple[str, ...]) -> Program:
        """The same step split as these passes, on record from now on, ask for."""
        tasks = partition(self.facts, hoist="hoist" in passes, fuse="fuse" in passes)
        return self._changed(tasks=tasks, passes=passes)

    def with_passes(self, passes: tuple[str, ...]) -> Program:
        """The same tasks, with other passes on record."""
        return self._changed(passes=passes)

    def with_tasks(self, tasks: tuple[Task, ...]) -> Program:
        """The same step in other tasks."""
        return self._changed(tasks=tasks)

    def _changed(self, **changes: Any) -> Program:
        program = dataclasses.replace(self, **changes)
        program.__dict__["facts"] = self.facts  # of the step, which is the same
        return program

    @cached_property
    def facts(self) -> Facts:
        """What is known about the values of the step."""
        return Facts(self.traced)

    @cached_property
    def interfaces(self) -> list[Interface]:
        """What each task reads and writes, in the order of the tasks."""
        return interfaces(self.tasks, self.traced.step.jaxpr.outvars)

    def function_of(self, index: int) -> ClosedJaxpr:
        """Task `index` as a function of what it reads, giving what it writes; shapes are symbolic."""
        return closed_task(self.tasks[index], self.interfaces[index])

    def cost(
        self,
        num_vertices: int | None = None,
        num_edges: int | None = None,
        *,
        intervals: int = 1,
        workers: int | None = None,
    ) -> ProgramCost:
        """Estimated FLOPs, gathered bytes and shipped bytes of each task, per epoch and once.

        Args:
            num_vertices: V (default: that of the data the model was traced on).
            num_edges: E (default: likewise).
            intervals: into how many intervals rows are cut.
            workers: how many workers keep the parameters for an epoch; None: every call fetches those that it reads.

        Raises:
            ValueError: a size is neither given nor known; fewer than 1 interval or worker.
        """
        from dorylax.program.view.cost import cost

        return cost(self, num_vertices, num_edges, intervals=intervals, workers=workers)

    def describe(self, num_vertices: int | None = None, num_edges: int | None = None) -> str:
        """The tasks as a table in the paper's vocabulary; sizes as in `cost`."""
        from dorylax.program.view.describe import describe

        return describe(self, num_vertices, num_edges)

    def draw(self) -> str:
        """The graph of tasks as an SVG."""
        from dorylax.program.view.draw import draw

        return draw(self)

    def export(self) -> StageSet:
        """The stages as artefacts that run without the model's code; see `dorylax.program.artefact.export`."""
        from dorylax.program.artefact.export import export_stages

        return export_stages(self)

    def as_function(self, num_vertices: int, num_edges: int, *, gathered: Gathered = "float32") -> ProgramFunction:
        """The program as one function again, for a graph of this size; what a single machine trains with."""
        from dorylax.program.single.function import ProgramFunction

        return ProgramFunction(self, num_vertices, num_edges, gathered=gathered)
