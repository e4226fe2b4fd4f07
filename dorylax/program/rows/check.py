"""The row check: proves, equation by equation, that a flat jaxpr computes rows independently.

`rules` describe the primitives; an unknown primitive is refused if rows or sums over them are involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from dorylax.jax_internals import Jaxpr, JaxprEqn, Var, is_literal
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.rows import advice
from dorylax.program.rows.axes import read_axis, row_axis, shown
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.guards import hides_something, is_free, refuse_after, refuse_before
from dorylax.program.rows.rules import Operation, Scope, rule_of, shape_of
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed
from dorylax.program.rows.zeros import is_zero

__all__ = ["RowError", "Wholes", "infer", "row_axis"]


@final
class Wholes:
    """Sums over rows that are treated as whole.

    Args:
        parts: Values whose parts are also needed, as for a gradient; any other value is whole for all later readers.

    Attributes:
        parts: The argument `parts`.
        operands: By the number of an equation, the positions of its operands that are sums and must be whole.
    """

    def __init__(self, parts: frozenset[Var] = frozenset()) -> None:
        self.parts = parts
        self.operands: dict[int, tuple[int, ...]] = {}


def infer(
    jaxpr: Jaxpr,
    inputs: Sequence[RowType],
    *,
    vertices: str = SYMBOLS["vertex"],
    edges: str = SYMBOLS["edge"],
    phase: str = "",
    wholes: Wholes | None = None,
) -> dict[Var, RowType]:
    """Prove that a jaxpr treats rows independently, except in graph operators.

    Args:
        jaxpr: Flat: calls are followed, but graph operators inside loops and custom derivatives are refused. Its
            constants have no rows.
        inputs: Type of each input.
        vertices: Symbol for the number of vertices.
        edges: Symbol for the number of edges.
        phase: Prefix of error messages ("in the gradient: ").
        wholes: If given, a sum over rows that an equation cannot process part by part is recorded here and treated as whole,
            instead of raising an error.

    Returns:
        The type of every variable.

    Raises:
        RowError: An equation mixes rows, or its independence cannot be proved.
        ValueError: The inputs' types do not fit their shapes.
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
    return _types(jaxpr, inputs, scope, wholes)


def _types(jaxpr: Jaxpr, inputs: Sequence[RowType], scope: Scope, wholes: Wholes | None = None) -> dict[Var, RowType]:
    types: dict[Var, RowType] = dict(zip(jaxpr.invars, inputs, strict=True))
    types.update((var, Free()) for var in jaxpr.constvars)
    for place, equation in enumerate(jaxpr.eqns):
        operands = [_read(types, atom) for atom in equation.invars]
        try:
            results = _equation(equation, operands, scope)
        except RowError as error:
            if wholes is None or not error.misused_sum:
                raise
            results = _with_wholes(place, equation, types, scope, wholes)
        types.update(zip(equation.outvars, results, strict=True))
    return types


def _with_wholes(
    place: int, equation: JaxprEqn, types: dict[Var, RowType], scope: Scope, wholes: Wholes
) -> Sequence[RowType]:
    """Return the types of an equation's results if as few as possible of the sums it reads are whole.

    Raises:
        RowError: Whole sums do not help: the sum is taken and used inside the equation, or another operand is at fault.
    """
    operands_of = enumerate(equation.invars)
    sums = {k: atom for k, atom in operands_of if isinstance(atom, Var) and isinstance(types[atom], Summed)}
    first = {k: var for k, var in sums.items() if var not in wholes.parts}
    for chosen in (first, sums) if first else (sums,):
        operands = [Free() if k in chosen else _read(types, atom) for k, atom in enumerate(equation.invars)]
        try:
            results = _equation(equation, operands, scope)
        except RowError as error:
            if chosen is sums or not error.misused_sum:
                raise
            continue
        wholes.operands[place] = tuple(chosen)
        types.update((var, Free()) for var in chosen.values() if var not in wholes.parts)
        return results
    raise AssertionError("the loop ends with all sums")


def _outputs(jaxpr: Jaxpr, inputs: Sequence[RowType], scope: Scope) -> list[RowType]:
    types = _types(jaxpr, inputs, scope)
    return [_read(types, atom) for atom in jaxpr.outvars]


def _read(types: dict[Var, RowType], atom: Any) -> RowType:
    return Free(zero=bool(atom.val == 0)) if is_literal(atom) else types[atom]


def _equation(equation: JaxprEqn, operands: Sequence[RowType], scope: Scope) -> Sequence[RowType]:
    """Return the types of an equation's results."""
    op = Operation(equation, operands, scope)
    rule = rule_of(op.name)
    refuse_before(op)
    if is_free(op) and (rule is not None or not hides_something(op)):
        return [Free(zero=is_zero(op))] * len(equation.outvars)
    if rule is None:
        op.unsupported(f"dorylax has no rule for the operation {op.name}", advice.unknown(op.name))
    results = rule(op)
    refuse_after(op, results)
    return results
