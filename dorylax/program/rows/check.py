"""The row check: proves, equation by equation, that a flat jaxpr computes rows independently.

`rules` describe the primitives; an unknown primitive is refused if rows or sums over them are involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from dorylax.jax_internals import Jaxpr, JaxprEqn, Var, is_literal, jaxprs_in_params
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.program.jaxpr.graph_operators import GLOBAL_SUM
from dorylax.program.rows import advice
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.rules import Operation, Scope, rule_of, shape_of
from dorylax.program.rows.rules.control import CALLS
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed, has_symbols, read_axis, shown
from dorylax.program.rows.zeros import is_zero

__all__ = ["RowError", "Wholes", "infer"]

_MAKE_ROWS = frozenset(["broadcast_in_dim", "iota", "tile"])

# Primitives whose rules decide even without rows.
_ASK_ALWAYS = frozenset(["dim_as_value", "rng_uniform", GLOBAL_SUM.name])

# Parameters that may hold a number of rows: sizes of the result, and slices that hold a whole axis of rows.
_SHAPES = {
    "broadcast_in_dim": "shape",
    "fft": "fft_lengths",
    "iota": "shape",
    "random_bits": "shape",
    "random_split": "shape",
    "reshape": "new_sizes",
    "rng_bit_generator": "shape",
    "tile": "reps",
}
_SLICES = {"dynamic_slice": "slice_sizes", "gather": "slice_sizes", "slice": "limit_indices"}


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
    phase: str = "",
    wholes: Wholes | None = None,
) -> dict[Var, RowType]:
    """Prove that a jaxpr treats rows independently, except in graph operators.

    Args:
        jaxpr: Flat: calls are followed, but graph operators inside loops and custom derivatives are refused. Its
            constants have no rows.
        inputs: Type of each input.
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
    scope = Scope(phase, None, (), _outputs)
    for k, (var, kind) in enumerate(zip(jaxpr.invars, inputs, strict=True)):
        if isinstance(kind, GraphArray):
            continue
        shape = shape_of(var)
        expected = read_axis(shape)
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
    _refuse_before(op)
    if _is_free(op) and (rule is not None or not _hides_something(op)):
        return [Free(zero=is_zero(op))] * len(equation.outvars)
    if rule is None:
        op.unsupported(f"dorylax has no rule for the operation {op.name}", advice.unknown(op.name))
    results = rule(op)
    _refuse_after(op, results)
    return results


def _refuse_before(op: Operation) -> None:
    """Refuse operations that no rule allows.

    Raises:
        RowError: Structure arrays enter an operation other than a graph operator, or rows of vertices and edges meet. Or the
            number of rows is a parameter, which would differ if only some rows are computed.
    """
    if op.name in CALLS or op.name in OPERATORS:
        return
    if any(isinstance(kind, GraphArray) for kind in op.types):
        op.refuse("computes with the arrays of the graph's structure", advice.STRUCTURE)
    if len({rows.space for _, rows in op.rows}) > 1:
        op.refuse("vertices and edges meet outside a graph operator", advice.STRUCTURE)
    if op.name == "dim_as_value":
        return
    allowed = {_SHAPES.get(op.name), _SLICES.get(op.name)}
    hidden = any(has_symbols(value) for name, value in op.params.items() if name not in allowed)
    if op.name in _SLICES:
        hidden |= sum(map(has_symbols, op.params[_SLICES[op.name]])) > 1
    if hidden or any(_counts_rows(jaxpr) for jaxpr in jaxprs_in_params(op.params)):
        what_to_do = advice.places(op.space) if op.name in _SLICES else advice.NUMBERS
        op.unsupported(f"the number of rows is a parameter of {op.name}", what_to_do)


def _counts_rows(jaxpr: Jaxpr) -> bool:
    """Whether a function of scalars, such as that of a reduction, reads a number of rows."""
    return any(
        equation.primitive.name in _ASK_ALWAYS or any(map(_counts_rows, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def _is_free(op: Operation) -> bool:
    """Whether all operands and results of an operation are values without rows."""
    if op.name in CALLS or op.name in _ASK_ALWAYS:
        return False
    return all(isinstance(kind, Free) for kind in op.types) and not has_symbols(op.result_shapes)


def _hides_something(op: Operation) -> bool:
    """Whether an unknown operation may have effects or contain other functions."""
    return bool(op.equation.effects) or any(True for _ in jaxprs_in_params(op.params))


def _refuse_after(op: Operation, results: Sequence[RowType]) -> None:
    """Check that a rule's result agrees with the shapes, to catch rules that are wrong about an axis.

    Raises:
        RowError: The result and the shapes disagree.
    """
    calls = op.name in CALLS
    if len(results) != len(op.result_shapes):
        op.unsupported(f"the rule for {op.name} gives {len(results)} results of {len(op.result_shapes)}")
    for k, kind in enumerate(results):
        if isinstance(kind, GraphArray) and calls:
            continue
        expected = op.result_rows(k)
        if (kind if isinstance(kind, Rows) else None) != expected:
            shape = shown(op.result_shapes[k])
            op.unsupported(f"the shape {shape} of a result of {op.name} does not follow from its operands")
        whole = calls or op.name == GLOBAL_SUM.name
        if isinstance(kind, GraphArray) or (isinstance(kind, Free) and not whole and (op.rows or op.sums)):
            op.unsupported(f"the result of {op.name} loses its rows")
        has_rows = op.rows or calls or op.name in _MAKE_ROWS or op.name in OPERATORS
        if expected is not None and not has_rows:
            op.unsupported(f"{op.name} makes {expected.space} rows of values without rows")
