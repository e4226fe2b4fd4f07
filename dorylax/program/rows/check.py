"""The row check: goes through a flat jaxpr equation by equation and proves that rows are computed independently.

What each primitive does is known to `rules`; an unknown one is refused wherever rows or sums over them are involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.jax_internals import Jaxpr, JaxprEqn, Var, is_literal
from dorylax.program.rows import advice
from dorylax.program.rows.axes import RowAxisError, read_axis, row_axis, shown
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.guards import hides_something, is_free, refuse_after, refuse_before
from dorylax.program.rows.rules import RULES, Operation, Scope, shape_of
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType
from dorylax.program.rows.zeros import is_zero
from dorylax.program.symbols import SYMBOLS

__all__ = ["RowAxisError", "RowError", "infer", "row_axis"]


def infer(
    jaxpr: Jaxpr,
    inputs: Sequence[RowType],
    *,
    vertices: str = SYMBOLS["vertex"],
    edges: str = SYMBOLS["edge"],
    phase: str = "",
) -> dict[Var, RowType]:
    """Proves that a jaxpr treats rows independently, but for graph operators.

    Args:
        jaxpr: flat: calls are followed, but graph operators inside loops and custom derivatives are refused. Its
            constants have no rows.
        inputs: the type of each input.
        vertices: the symbol for the number of vertices.
        edges: the symbol for the number of edges.
        phase: what messages begin with ("in the gradient: ").

    Returns:
        The type of every variable.

    Raises:
        RowError: an equation mixes rows, or nothing can be proved about it.
        ValueError: the inputs' types do not fit their shapes.
    """
    if len(inputs) != len(jaxpr.invars):
        raise ValueError(f"inputs must have a type for each of the {len(jaxpr.invars)} inputs, got {len(inputs)}")
    scope = Scope({vertices: "vertex", edges: "edge"}, phase, None, (), _outputs)
    for k, (var, kind) in enumerate(zip(jaxpr.invars, inputs, strict=True)):
        if isinstance(kind, GraphArray):
            continue
        shape = shape_of(var)
        expected = read_axis(shape, scope.spaces)
        given = kind if isinstance(kind, Rows) else None
        if expected != given:
            raise ValueError(f"inputs[{k}] is said to be {kind}, but has shape {shown(shape)}")
    return _types(jaxpr, inputs, scope)


def _types(jaxpr: Jaxpr, inputs: Sequence[RowType], scope: Scope) -> dict[Var, RowType]:
    types: dict[Var, RowType] = dict(zip(jaxpr.invars, inputs, strict=True))
    types.update((var, Free()) for var in jaxpr.constvars)
    for equation in jaxpr.eqns:
        results = _equation(equation, [_read(types, atom) for atom in equation.invars], scope)
        types.update(zip(equation.outvars, results, strict=True))
    return types


def _outputs(jaxpr: Jaxpr, inputs: Sequence[RowType], scope: Scope) -> list[RowType]:
    types = _types(jaxpr, inputs, scope)
    return [_read(types, atom) for atom in jaxpr.outvars]


def _read(types: dict[Var, RowType], atom: Any) -> RowType:
    return Free(zero=bool(atom.val == 0)) if is_literal(atom) else types[atom]


def _equation(equation: JaxprEqn, operands: Sequence[RowType], scope: Scope) -> Sequence[RowType]:
    """The types of an equation's results."""
    op = Operation(equation, operands, scope)
    rule = RULES.get(op.name)
    refuse_before(op)
    if is_free(op) and (rule is not None or not hides_something(op)):
        return [Free(zero=is_zero(op))] * len(equation.outvars)
    if rule is None:
        op.unsupported(f"dorylax has no rule for the operation {op.name}", advice.unknown(op.name))
    results = rule(op)
    refuse_after(op, results)
    return results
