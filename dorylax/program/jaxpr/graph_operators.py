"""Graph operators among equations, with their operations and bytes read, for given numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dorylax.jax_internals import JaxprEqn, size_at
from dorylax.ops.primitives.operator import OPERATORS, CallSizes, Operator
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.symbols import item_bytes, value_bytes

_INDEX_BYTES = 4  # neighbours and edge ids are int32


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
    shapes: list[tuple[Any, ...]] = [_shape(atom) for atom in equation.invars]
    *dense, offsets, neighbours = shapes[: 2 - len(Structure._fields)]
    return CallSizes(
        rows=int(size_at(offsets[0], sizes)) - 1,
        entries=int(size_at(neighbours[0], sizes)),
        widths=tuple(math.prod(int(size_at(dim, sizes)) for dim in shape[1:]) for shape in dense),
    )


def _shape(atom: Any) -> tuple[Any, ...]:
    return tuple(atom.aval.shape)
