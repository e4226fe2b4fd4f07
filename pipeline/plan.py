"""The plan of an epoch: the steps of a program for intervals on graph servers, and the tasks of the driver.

Each value is read in one of three ways (`dorylax.program.tasks.steps`):

- by the interval's own rows: the value stays with the interval;
- through edges of other intervals' rows: the graph server publishes it in a buffer and sends boundary rows to peers;
- summed per source: servers exchange partial sums.

A plan is independent of the graph and the cluster.
"""

from __future__ import annotations

import dataclasses
from typing import final

from dorylax.jax_internals import Var, is_literal, variables
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.program import Program
from dorylax.program.rows.types import Free, Rows, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import Publication, Step, lower
from dorylax.program.tasks.task import Task


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
        constants: Values that are the same in every epoch: data, and results of `once` steps.
    """

    program: Program
    once: tuple[Step, ...]
    epoch: tuple[Step, ...]
    publications: tuple[Publication, ...]
    before: tuple[Task, ...]
    constants: frozenset[Var]

    @classmethod
    def of(cls, program: Program, *, workers: bool = True) -> Plan:
        """Return the plan of a program.

        Without a loss, an epoch is an evaluation, and rows of the output stay with the pass.

        Args:
            program: The program.
            workers: Whether tensor workers run the stages that the program intends for them.

        Raises:
            SplitError: The loss does not depend on the vertices.
        """
        _check_outputs(program)
        lowered = lower(program)
        before, after = _driver(program)
        steps = [step for step in lowered.steps if step.index not in {*before, *after}]
        outputs = variables(program.traced.step.jaxpr.outvars)
        pushed = {var for k in after for var in program.interfaces[k].reads}
        pushed |= {*outputs, *(_statistics(program) - lowered.constants)}
        types = program.analysis.types
        last_read = {var: step.index for step in steps for var in step.reads}
        last_read.update((var, len(program.tasks)) for var in outputs if isinstance(types[var], Rows))
        lasting = {"once": lowered.constants & set(program.traced.step.jaxpr.invars), "epoch": lowered.constants}

        def forgotten(step: Step) -> tuple[Var, ...]:
            # Values without rows that are computed once are small, and the driver may read them in every epoch.
            return tuple(
                var
                for var in dict.fromkeys((*step.reads, *step.writes))
                if var not in lasting[step.when]
                and last_read.get(var, step.index) == step.index
                and (isinstance(types[var], Rows) or step.when == "epoch")
            )

        planned = [
            dataclasses.replace(
                step,
                label=program.label(step.index),
                on_worker=workers and step.kind == "stage" and program.tasks[step.index].place == "worker",
                sums=tuple(var for var in step.writes if var in pushed and not isinstance(types[var], Rows)),
                forget=forgotten(step),
            )
            for step in steps
        ]
        return cls(
            program=program,
            once=tuple(step for step in planned if step.when == "once"),
            epoch=tuple(step for step in planned if step.when == "epoch"),
            publications=lowered.publications,
            before=tuple(program.tasks[k] for k in before),
            constants=lowered.constants,
        )

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


def _statistics(program: SplitModel) -> set[Var]:
    """Return the values without rows that are computed from rows and contribute to new state."""
    step, types = program.traced.step.jaxpr, program.analysis.types
    outputs = zip(program.traced.outputs, step.outvars, strict=True)
    needed = set(variables(atom for output, atom in outputs if output.role == "state"))
    statistics: set[Var] = set()
    for equation in reversed(step.eqns):
        made = needed.intersection(equation.outvars)
        if all(isinstance(types[var], Free) for var in variables(equation.invars)):
            needed.update(variables(equation.invars) if made else ())
        else:
            statistics |= made
    return statistics


def _check_outputs(program: SplitModel) -> None:
    traced = program.traced
    for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
        if output.role in ("state", "input_gradient", "output") or is_literal(atom):
            continue
        found = program.analysis.types[atom]
        if not (isinstance(found, Summed) or (isinstance(found, Free) and found.zero)):
            raise SplitError(
                f"{output.role} {output.name} of {traced.name} does not depend on any vertex: a pipeline adds up what "
                "intervals contribute. Leave it out of the model's outputs"
            )


def _driver(program: SplitModel) -> tuple[list[int], list[int]]:
    """Return the driver's tasks of an epoch before all rows, and after all rows. The rare others are steps."""
    traced, types = program.traced, program.analysis.types
    tasks = list(zip(program.tasks, program.interfaces, strict=True))
    entries = zip(traced.step.jaxpr.invars, traced.inputs, strict=True)
    free = {var for var, entry in entries if isinstance(types[var], Free) or entry.role == "constant"}
    for task, interface in tasks:
        if task.when == "once" and task.kind in ("driver", "sum"):
            free.update(interface.writes)
    before: list[int] = []
    rest: list[int] = []
    for k, (task, interface) in enumerate(tasks):
        if task.kind == "driver" and task.when == "epoch":
            if set(interface.reads) <= free:
                before.append(k)
                free.update(interface.writes)
            else:
                rest.append(k)
    read_by_rows = {
        var for task, interface in tasks if task.kind != "driver" and task.when == "epoch" for var in interface.reads
    }
    after: list[int] = []
    for k in reversed(rest):
        interface = program.interfaces[k]
        if read_by_rows.isdisjoint(interface.writes):
            after.append(k)
        else:
            read_by_rows.update(interface.reads)
    return before, after[::-1]
