"""Operands of graph operators, and those that belong to the vertex at the other end of an edge."""

from __future__ import annotations

from typing import Literal

from dorylax.jax_internals import JaxprEqn, Var
from dorylax.ops.primitives.operator import OPERATORS, Role
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_operators import operator_on_rows

Storage = Literal["sharded", "symmetric", "directed"]
"""Edges by source that a back end holds.

- "sharded": each server has the out-edges of its vertices, but values of edges and choices of extrema are with destinations.
- "symmetric": rows by destination serve as rows by source, except for values of edges.
- "directed": none.
"""


def is_push(equation: JaxprEqn, storage: Storage = "sharded") -> bool:
    """Whether an operator over out-edges must sum, per source, values that the destinations hold."""
    operator = operator_on_rows(equation.primitive.name)
    if storage == "sharded":
        return operator.is_push(equation.params)
    out = operator.side(equation.params) == "out"
    return out and (storage == "directed" or "edge" in operator.roles(equation.params))


def read_along(equation: JaxprEqn, storage: Storage = "sharded") -> tuple[Direction, Role]:
    """Return the edges along which an operator reads rows of other vertices, and the role of those operands.

    For a push, "own" are the rows of sources and "neighbour" those of destinations, which the interval holds.
    """
    if is_push(equation, storage):
        return "in", "own"
    return operator_on_rows(equation.primitive.name).side(equation.params), "neighbour"


def dense_operands(equation: JaxprEqn) -> list[tuple[Var, Role]]:
    """Return the operator's operands other than the graph, each with the row that an entry reads of it."""
    found = operator_on_rows(equation.primitive.name).roles(equation.params)
    return [(atom, role) for atom, role in zip(equation.invars, found, strict=False) if isinstance(atom, Var)]


def travelling(equation: JaxprEqn) -> list[Var]:
    """Return the rows that servers send each other for an operator; none for one that only runs on a whole graph."""
    if OPERATORS[equation.primitive.name].compute_rows is None:
        return []
    _, through = read_along(equation)
    return [var for var, role in dense_operands(equation) if role == through]
