"""The tasks of a program. A task holds equations; the values that cross between tasks follow from them (`Interface`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, final

from dorylax.jax_internals import JaxprEqn, Var, variables
from dorylax.program.jaxpr.rewrite import live
from dorylax.program.jaxpr.symbols import Space

Kind = Literal["driver", "graph", "stage", "sum"]
When = Literal["once", "epoch"]
Phase = Literal["forward", "backward", "both"]
Place = Literal["driver", "graph server", "worker"]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """One task.

    Attributes:
        kind: "graph" is one graph operator, run by graph servers; "stage" is row-wise arithmetic, run interval by
            interval; "driver" is arithmetic without rows (parameters, keys, sums over rows); "sum" completes sums over all
            rows, for which all intervals meet.
        when: Once before training, or in every epoch.
        phase: Forward or backward pass, or both if they are fused.
        level: Number of graph operators and complete sums on the longest path to it from the start of the epoch.
        place: Process that runs it.
        space: Space of the rows that a stage computes, or a graph operator returns; None without rows.
        equations: Equations in order. Several tasks may contain, and compute, the same equation.
    """

    kind: Kind
    when: When
    phase: Phase
    level: int
    place: Place
    space: Space | None
    equations: tuple[JaxprEqn, ...]

    @cached_property
    def defined(self) -> frozenset[Var]:
        """Values that its equations compute."""
        return frozenset(var for equation in self.equations for var in equation.outvars)

    @cached_property
    def read(self) -> tuple[Var, ...]:
        """Values that it needs from elsewhere, in order of first use."""
        own = self.defined
        operands = (var for equation in self.equations for var in variables(equation.invars))
        return tuple(var for var in dict.fromkeys(operands) if var not in own)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Interface:
    """Values that cross a task's boundary.

    Attributes:
        reads: Values from the program's inputs and from earlier tasks, in order of first use.
        writes: Values that later tasks or the program's outputs read.
    """

    reads: tuple[Var, ...]
    writes: tuple[Var, ...]


def homes(tasks: Sequence[Task]) -> dict[Var, int]:
    """Return the first task that computes each value, from which others read it."""
    return {var: k for k in reversed(range(len(tasks))) for var in tasks[k].defined}


def interfaces(tasks: Sequence[Task], outputs: Iterable[Any]) -> list[Interface]:
    """Return the interface of each task."""
    home = homes(tasks)
    wanted = {*variables(outputs), *(var for task in tasks for var in task.read)}
    found = []
    for k, task in enumerate(tasks):
        # In order of computation, so that equal tasks have equal interfaces.
        made = (var for equation in task.equations for var in equation.outvars)
        found.append(Interface(task.read, tuple(var for var in made if var in wanted and home[var] == k)))
    return found


def tidy(tasks: Sequence[Task], outputs: Iterable[Any]) -> tuple[Task, ...]:
    """Remove unused equations, and tasks that are then empty."""
    home = homes(tasks)
    needed = set(variables(outputs))
    kept: list[Task] = []
    for k in reversed(range(len(tasks))):
        task = tasks[k]
        mine = [var for var in task.defined if var in needed and home[var] == k]
        equations = live(task.equations, mine)
        if equations:
            same = len(equations) == len(task.equations)
            slim = task if same else dataclasses.replace(task, equations=tuple(equations))
            kept.append(slim)
            needed.update(slim.read)
    return tuple(kept[::-1])


def phased(tasks: Sequence[Task], outputs: Iterable[Any], backward: frozenset[Var]) -> tuple[Task, ...]:
    """Set the phase of each task from the values that it writes.

    Args:
        tasks: The tasks.
        outputs: Outputs of the program.
        backward: Values of the backward pass.
    """
    found = []
    for task, interface in zip(tasks, interfaces(tasks, outputs), strict=True):
        sides = {var in backward for var in interface.writes}
        phase: Phase = "both" if len(sides) == 2 else "backward" if True in sides else "forward"
        found.append(task if task.phase == phase else dataclasses.replace(task, phase=phase))
    return tuple(found)
