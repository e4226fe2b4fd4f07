"""Operands of graph operators, and those that belong to the vertex at the other end of an edge."""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn, Var
from dorylax.ops.primitives.operator import OPERATORS, Role
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_operators import operator_on_rows


def is_push(equation: JaxprEqn) -> bool:
    """Whether an operator sums, per source, values stored with the destinations, whose servers sum first."""
    return operator_on_rows(equation.primitive.name).is_push(equation.params)


def read_along(equation: JaxprEqn) -> tuple[Direction, Role]:
    """Return the edges along which an operator reads rows of other vertices, and the role of those operands.

    For a push, "own" are the rows of sources and "neighbour" those of destinations, which the interval holds.
    """
    operator = operator_on_rows(equation.primitive.name)
    return ("in", "own") if is_push(equation) else (operator.side(equation.params), "neighbour")


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
