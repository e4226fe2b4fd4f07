"""Equations at which rows meet: graph operators, with their costs for given numbers of rows, and completed sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from dorylax.jax_internals import JaxprEqn, Primitive, Var, mlir, size_at, type_of
from dorylax.ops.primitives.operator import OPERATORS, CallSizes, Operator, Role
from dorylax.ops.primitives.structure import Direction, Structure
from dorylax.ops.row_operators import operator_on_rows
from dorylax.program.jaxpr.symbols import item_bytes, value_bytes

_INDEX_BYTES = 4  # neighbours and edge ids are int32

GLOBAL_SUM = Primitive("global_sum")
"""The operation at which the parts of a sum over all rows meet: `part -> sum of all parts`, of the same shape and dtype.

A pipeline runs it as a synchronisation point: each interval contributes its part and receives the total. If all rows are in
one place, it is the identity. Models do not call it: `complete_sums` inserts it into a differentiated step.
"""

GLOBAL_SUM.def_impl(lambda part: part)
GLOBAL_SUM.def_abstract_eval(lambda part: part)
mlir.register_lowering(GLOBAL_SUM, lambda _, part: [part])


def is_global_sum(equation: JaxprEqn) -> bool:
    """Whether the equation completes a sum over rows."""
    return equation.primitive is GLOBAL_SUM


def is_graph_operator(equation: JaxprEqn) -> bool:
    """Whether the equation is one of `dorylax.ops.primitives`."""
    return equation.primitive.name in OPERATORS


def operator_of(equation: JaxprEqn) -> Operator:
    """Return the record of an equation's graph operator."""
    return OPERATORS[equation.primitive.name]


def operator_flops(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """Estimate the operations of a graph operator. Arguments as for `flops.equation_flops`."""
    return operator_of(equation).flops(_call_sizes(equation, sizes))


def gathered_bytes(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """Return the bytes that a graph operator reads.

    For each of the E entries: the neighbour's row (heads × columns × bytes of a number), the edge's weight or row, 4 bytes
    of index for the neighbour, and 4 for the edge id if rows by source look up values by edge. Rows of the entry's own end
    are read once per vertex. The V + 1 offsets and the results do not count.

    Args:
        equation: Equation of a graph operator.
        sizes: `{"n": V, "e": E}`.
    """
    operator, call = operator_of(equation), _call_sizes(equation, sizes)
    roles = operator.roles(equation.params)
    total = _INDEX_BYTES * call.entries if operator.compares_ends or "neighbour" in roles else 0
    if "edge" in roles and operator.side(equation.params) == "out":
        total += _INDEX_BYTES * call.entries
    for atom, role, width in zip(equation.invars, roles, call.widths, strict=False):
        if role == "neighbour":
            total += call.entries * width * item_bytes(atom.aval)
        else:
            total += value_bytes(atom.aval, sizes)
    return total


def _call_sizes(equation: JaxprEqn, sizes: Mapping[str, int]) -> CallSizes:
    shapes = [type_of(atom).shape for atom in equation.invars]
    *dense, offsets, neighbours = shapes[: 2 - len(Structure._fields)]
    return CallSizes(
        rows=int(size_at(offsets[0], sizes)) - 1,
        entries=int(size_at(neighbours[0], sizes)),
        widths=tuple(math.prod(int(size_at(dim, sizes)) for dim in shape[1:]) for shape in dense),
    )


Storage = Literal["sharded", "symmetric", "directed"]
"""Edges by source that a back end holds.

- "sharded": each server has the out-edges of its vertices, but values of edges and choices of extrema are with destinations.
- "symmetric": rows by destination serve as rows by source, except for values of edges.
- "directed": none.
"""


def read_along(equation: JaxprEqn, storage: Storage = "sharded") -> tuple[Direction, Role]:
    """Return the edges along which an operator reads rows of other vertices, and the role of those operands.

    It is a push if it sums, per source, values that only the destinations hold: values of edges live with their destination,
    and so does the choice of edges that attained an extremum. Destinations then sum them per source and send the sums; "own"
    are the rows of sources and "neighbour" those of destinations, which the interval holds.
    """
    operator = operator_on_rows(equation.primitive.name)
    side = operator.side(equation.params)
    held = "edge" in operator.roles(equation.params) or storage == "directed"
    held |= storage == "sharded" and operator.choice_at_destination
    return ("in", "own") if held and side == "out" else (side, "neighbour")


def dense_operands(equation: JaxprEqn) -> list[tuple[Var, Role]]:
    """Return the operator's operands other than the graph, each with the row that an entry reads of it."""
    found = operator_on_rows(equation.primitive.name).roles(equation.params)
    return [(atom, role) for atom, role in zip(equation.invars, found, strict=False) if isinstance(atom, Var)]


def travelling(equation: JaxprEqn) -> list[Var]:
    """Return the rows that servers send each other for an operator; none for one that only runs on a whole graph."""
    if operator_of(equation).compute_rows is None:
        return []
    _, through = read_along(equation)
    return [var for var, role in dense_operands(equation) if role == through]
