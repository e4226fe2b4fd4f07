"""Checks common to all primitives: refusals before a rule runs, and comparison of its result with shapes."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.jax_internals import Jaxpr, jaxprs_in_params
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.program.jaxpr.global_sum import GLOBAL_SUM
from dorylax.program.rows import advice
from dorylax.program.rows.axes import has_symbols, shown
from dorylax.program.rows.rules import Operation
from dorylax.program.rows.rules.calls import CALLS
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType

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


def refuse_before(op: Operation) -> None:
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


def is_free(op: Operation) -> bool:
    """Whether all operands and results of an operation are values without rows."""
    if op.name in CALLS or op.name in _ASK_ALWAYS:
        return False
    return all(isinstance(kind, Free) for kind in op.types) and not has_symbols(op.result_shapes)


def hides_something(op: Operation) -> bool:
    """Whether an unknown operation may have effects or contain other functions."""
    return bool(op.equation.effects) or any(True for _ in jaxprs_in_params(op.params))


def refuse_after(op: Operation, results: Sequence[RowType]) -> None:
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
