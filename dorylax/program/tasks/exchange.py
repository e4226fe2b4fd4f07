"""Values that graph servers send each other because a graph operator reads or sums them across edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dorylax.jax_internals import Var
from dorylax.ops.primitives.structure import Direction
from dorylax.program.tasks.along_edges import dense_operands, is_push, read_along
from dorylax.program.tasks.split_model import SplitModel


class Exchange(NamedTuple):
    """A value whose rows a server sends to every server with the row's vertex as a ghost, or to the vertex's owner.

    Attributes:
        var: The value, rows of vertices.
        direction: Direction of the edges to the ghosts.
        constant: Whether it is sent once, before training.
    """

    var: Var
    direction: Direction
    constant: bool


def exchanges(program: SplitModel) -> Iterator[Exchange]:
    """Yield all exchanges of a program: rows read through edges, and sums per source for their owners."""
    inputs = zip(program.traced.step.jaxpr.invars, program.traced.inputs, strict=True)
    constants = {var for var, entry in inputs if entry.of_data}
    for task, interface in zip(program.tasks, program.interfaces, strict=True):
        if task.when == "once":
            constants.update(interface.writes)
    read: set[tuple[Var, Direction]] = set()
    for task in program.tasks:
        if task.kind != "graph":
            continue
        equation = task.equations[0]
        side, through = read_along(equation)
        for var, role in dense_operands(equation):
            if role == through and (var, side) not in read:
                read.add((var, side))
                yield Exchange(var, side, var in constants)
        if is_push(equation):
            (summed,) = equation.outvars
            assert isinstance(summed, Var)
            yield Exchange(summed, "in", task.when == "once")
