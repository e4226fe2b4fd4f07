"""What graph operators read, and what of it belongs to the vertex at the other end of an edge."""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn, Var
from dorylax.ops.primitives.operator import OPERATORS, Role
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_operators import operator_on_rows


def is_push(equation: JaxprEqn) -> bool:
    """Whether an operator sums per source what lies with the destinations, whose servers sum first."""
    return operator_on_rows(equation.primitive.name).is_push(equation.params)


def read_along(equation: JaxprEqn) -> tuple[Direction, Role]:
    """Along which edges an operator reads rows of others, and by which of its operands.

    Of a push, "own" are the rows of sources and "neighbour" those of destinations, which the interval has itself.
    """
    operator = operator_on_rows(equation.primitive.name)
    return ("in", "own") if is_push(equation) else (operator.side(equation.params), "neighbour")


def dense_operands(equation: JaxprEqn) -> list[tuple[Var, Role]]:
    """The operands of an operator that are no part of the graph, and whose row an entry reads of each."""
    found = operator_on_rows(equation.primitive.name).roles(equation.params)
    return [(atom, role) for atom, role in zip(equation.invars, found, strict=False) if isinstance(atom, Var)]


def travelling(equation: JaxprEqn) -> list[Var]:
    """The rows that servers send each other for an operator; none for one that only runs on a whole graph."""
    if OPERATORS[equation.primitive.name].compute_rows is None:
        return []
    _, through = read_along(equation)
    return [var for var, role in dense_operands(equation) if role == through]
