"""Flattens a jaxpr into one list of equations without calls, so that every graph operator is visible.

`jit`, `remat` and other plain calls are inlined. A `scan` is unrolled if it contains a graph operator, randomness or ids of
rows, a number of rows, or a sum over rows; otherwise it stays one equation. Custom derivatives stay opaque until the model
has been differentiated and are inlined then. Fused operators are replaced by their component operators, so that each can be
cut separately; on one machine they stay.

Values that depend on a row's number read it from an input, so that they do not depend on where the row is computed
(`RowNumbers`). A row's number is its position in the user's arrays: for a vertex its id, for an edge its rank among the ids
of edges.

- Random bits for rows are hashed from the row's number: bit-identical to `jax.random.bits` on the graph in the given order.
- `iota` over rows (`jnp.arange(num_vertices)`) becomes their numbers.
- A number of rows as a value (`x.shape[0]` in arithmetic) becomes that of the whole graph, an input of the program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    as_written_at,
    jaxprs_in_params,
    size_at,
    symbols_of,
    type_of,
    written_at,
    written_somewhere,
)
from dorylax.ops.row_random import row_bits
from dorylax.program.jaxpr.errors import refuse
from dorylax.program.jaxpr.graph_operators import is_graph_operator, operator_of
from dorylax.program.jaxpr.rewrite import Builder
from dorylax.program.jaxpr.symbols import SYMBOLS, Space, row_space
from dorylax.program.rows.types import shown
from dorylax.program.tracing.traced import Input

Replacement = tuple[Callable[..., Any], list[Any]]


class RowNumbers(NamedTuple):
    """Positions of the traced function's inputs for numbers of rows and for row counts."""

    numbers: Mapping[Space, int]  # int32 [n] and [e]
    counts: Mapping[Space, int]  # int32 []

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> RowNumbers:
        """Find them among the inputs of a traced model."""
        found = {(entry.role, entry.space): k for k, entry in enumerate(inputs)}
        return cls(
            numbers={"vertex": found["ids", "vertex"], "edge": found["places", "edge"]},
            counts={space: found["count", space] for space in SYMBOLS},
        )

    def replace(self, equation: JaxprEqn, operands: Sequence[Any], inputs: Sequence[Any]) -> Replacement | None:
        """Return a function and its operands to replace an equation; None to keep the equation.

        Args:
            equation: Any equation of a flat jaxpr.
            operands: Operands of the equation.
            inputs: Inputs of the traced function.

        Raises:
            SplitError: Randomness for rows has a form that cannot be drawn row by row.
        """
        name = equation.primitive.name
        if name == "random_bits":
            return self._bits(equation, operands, inputs)
        if name == "iota":
            return self._iota(equation, inputs)
        if name == "dim_as_value":
            return self._count(equation, inputs)
        return None

    def _bits(self, equation: JaxprEqn, operands: Sequence[Any], inputs: Sequence[Any]) -> Replacement | None:
        shape, bit_width = equation.params["shape"], equation.params["bit_width"]
        axes = [axis for axis, size in enumerate(shape) if row_space(size) is not None]
        if not axes:
            return None
        (key,) = operands
        space, factor = row_space(shape[axes[0]]) or ("vertex", 0)
        if len(axes) > 1 or factor != 1 or key.aval.shape:
            refuse(
                equation,
                f"randomness of shape {shown(shape)} cannot be drawn vertex by vertex",
                "Draw one array with one axis of vertices (or edges) from a single key: shape [V, …]",
            )
        axis = axes[0]
        rest = (*shape[:axis], *shape[axis + 1 :])

        def draw(key: Any, numbers: Any) -> Any:
            rows = row_bits(key, numbers, math.prod(rest), bit_width)
            return jnp.moveaxis(rows.reshape(numbers.shape[0], *rest), 0, axis)

        return draw, [key, inputs[self.numbers[space]]]

    def _iota(self, equation: JaxprEqn, inputs: Sequence[Any]) -> Replacement | None:
        params = equation.params
        found = row_space(params["shape"][params["dimension"]])
        if found is None or found[1] != 1:
            return None

        def number(numbers: Any) -> Any:
            return jax.lax.broadcast_in_dim(numbers.astype(params["dtype"]), params["shape"], (params["dimension"],))

        return number, [inputs[self.numbers[found[0]]]]

    def _count(self, equation: JaxprEqn, inputs: Sequence[Any]) -> Replacement:
        dim, dtype = equation.params["dim"], type_of(equation.outvars[0]).dtype
        spaces = [space for space in self.counts if SYMBOLS[space] in symbols_of(dim)]

        def count(*sizes: Any) -> Any:
            values = {SYMBOLS[space]: size.astype(dtype) for space, size in zip(spaces, sizes, strict=True)}
            return jnp.asarray(size_at(dim, values), dtype)

        return count, [inputs[self.counts[space]] for space in spaces]


_CALLS = {"jit": "jaxpr", "remat2": "jaxpr", "closed_call": "call_jaxpr"}
_CUSTOM = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def flatten(
    closed: ClosedJaxpr, *, custom: bool, row_numbers: RowNumbers | None = None, fused: bool = False
) -> ClosedJaxpr:
    """Return a jaxpr of the same values without calls.

    Args:
        closed: Any jaxpr.
        custom: Whether functions with custom derivatives are inlined too (and lose these).
        row_numbers: Replaces equations that depend on a row's number; None: these stay.
        fused: Whether fused operators stay.

    Raises:
        SplitError: A graph operator is inside `while`, `cond` or a function with a custom derivative.
    """
    flattener = _Flattener(closed, custom, row_numbers, fused)
    return flattener.finish(flattener.inline(closed.jaxpr, closed.consts, closed.jaxpr.invars))


class _Flattener(Builder):
    def __init__(self, closed: ClosedJaxpr, custom: bool, row_numbers: RowNumbers | None, fused: bool) -> None:
        super().__init__(closed)
        self._row_numbers = row_numbers
        self._fused = fused
        self._callers: list[JaxprEqn] = []
        # In a gradient, sums over rows are gradients of parameters, which no loop reads.
        self._forward = not custom
        self._calls = _CALLS | (_CUSTOM if custom else {})

    def add(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        name = equation.primitive.name
        if name in self._calls:
            inner = equation.params[self._calls[name]]
            jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
            return self._called(equation, jaxpr, consts, operands)
        if name == "scan" and _must_see(equation, sums=self._forward):
            return self._unroll(equation, operands)
        if name != "scan" and not is_graph_operator(equation) and _holds(equation, is_graph_operator):
            refuse(
                equation,
                f"a graph operator inside {_WORDS.get(name, name)}",
                "Use a Python loop or jax.lax.scan, whose number of steps is fixed, and differentiate graph operators "
                "by their own rules",
            )
        written_out = operator_of(equation).written_out if is_graph_operator(equation) else None
        if written_out is not None and not self._fused:
            with as_written_at(equation):
                return self.inline_function(functools.partial(written_out, **equation.params), operands)
        inputs = self._old.jaxpr.invars
        replacement = None if self._row_numbers is None else self._row_numbers.replace(equation, operands, inputs)
        if replacement is not None:
            with as_written_at(equation):
                return self.inline_function(*replacement)
        if self._callers and not written_somewhere(equation):
            equation = written_at(equation, self._callers[-1])
        return super().add(equation, operands)

    def _called(self, call: JaxprEqn, jaxpr: Jaxpr, consts: Sequence[Any], operands: list[Any]) -> list[Any]:
        """Inline a call; equations without a source line, which the library traced once, get the line of the call."""
        known = written_somewhere(call)
        if known:
            self._callers.append(call)
        results = self.inline(jaxpr, consts, operands)
        if known:
            self._callers.pop()
        return results

    def _unroll(self, equation: JaxprEqn, operands: list[Any]) -> list[Any]:
        params = equation.params
        body, length = params["jaxpr"], params["length"]
        if not isinstance(length, int):
            refuse(
                equation,
                "a scan over vertices or edges with a graph operator or randomness in it",
                "Rows must be computed independently; use the graph operators of dorylax.ops",
            )
        first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
        consts, carry, stacked = operands[:first], operands[first:last], operands[last:]
        steps: list[list[Any] | None] = [None] * length
        for step in reversed(range(length)) if params["reverse"] else range(length):
            rows = [self.inline_function(_take(step), [atom])[0] for atom in stacked]
            results = self.inline(body.jaxpr, body.consts, [*consts, *carry, *rows])
            carry, steps[step] = results[: len(carry)], results[len(carry) :]
        outputs = []
        for k, var in enumerate(equation.outvars[len(carry) :]):
            zeros = functools.partial(jnp.zeros, type_of(var).shape, type_of(var).dtype)
            rows = [row[k] for row in steps if row is not None]
            outputs += self.inline_function(_stack if rows else zeros, rows)
        return [*carry, *outputs]


_WORDS = {
    "while": "while_loop (or fori_loop with bounds that are not fixed)",
    "cond": "cond (or switch)",
    "custom_jvp_call": "a function with a custom derivative (jax.custom_jvp)",
    "custom_vjp_call": "a function with a custom derivative (jax.custom_vjp)",
}


@functools.cache
def _take(step: int) -> Any:
    return lambda stacked: jax.lax.index_in_dim(stacked, step, 0, keepdims=False)


def _stack(*rows: Any) -> Any:
    return jnp.stack(rows)


def _holds(equation: JaxprEqn, wanted: Any) -> bool:
    """Whether an inner jaxpr of the equation, at any depth, contains a matching equation."""
    return any(
        wanted(inner) or _holds(inner, wanted) for jaxpr in jaxprs_in_params(equation.params) for inner in jaxpr.eqns
    )


def _must_see(equation: JaxprEqn, *, sums: bool) -> bool:
    return _holds(
        equation,
        lambda inner: is_graph_operator(inner) or _depends_on_row_number(inner) or (sums and _adds_up_rows(inner)),
    )


def _adds_up_rows(equation: JaxprEqn) -> bool:
    """Whether an equation adds up values of different rows; such a sum may need completion outside the loop."""
    if equation.primitive.name == "reduce_sum":
        axes = equation.params["axes"]
    elif equation.primitive.name == "dot_general":
        axes = equation.params["dimension_numbers"][0][0]
    else:
        return False
    return any(row_space(type_of(equation.invars[0]).shape[axis]) is not None for axis in axes)


def _depends_on_row_number(equation: JaxprEqn) -> bool:
    """Whether a result depends on the position or number of rows: randomness, ids and numbers of rows."""
    name = equation.primitive.name
    if name == "dim_as_value":
        return True
    if name == "iota":
        return row_space(equation.params["shape"][equation.params["dimension"]]) is not None
    if name == "random_bits":
        return any(row_space(size) is not None for size in equation.params["shape"])
    return False
