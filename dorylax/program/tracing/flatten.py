"""Flattens a jaxpr into one list of equations without calls, so that every graph operator is visible.

`jit`, `remat` and other plain calls are inlined. A `scan` is unrolled if it contains a graph operator, randomness or ids of
rows, a number of rows, or a sum over rows; otherwise it stays one equation. Custom derivatives stay opaque until the model
has been differentiated and are inlined then. Fused operators are replaced by their component operators, so that each can be
cut separately; on one machine they stay.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dorylax.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    as_written_at,
    close,
    fresh_var,
    is_literal,
    jaxprs_in_params,
    make_jaxpr_of,
    replace_equation,
    type_of,
    written_at,
    written_somewhere,
)
from dorylax.program.jaxpr.errors import refuse
from dorylax.program.jaxpr.graph_operators import is_graph_operator, operator_of
from dorylax.program.jaxpr.symbols import row_space
from dorylax.program.tracing.row_numbers import RowNumbers

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
    return _Flattener(custom, row_numbers, fused).run(closed)


class _Flattener:
    def __init__(self, custom: bool, row_numbers: RowNumbers | None, fused: bool) -> None:
        self._row_numbers = row_numbers
        self._fused = fused
        self._inputs: list[Var] = []
        self._callers: list[JaxprEqn] = []
        # In a gradient, sums over rows are gradients of parameters, which no loop reads.
        self._forward = not custom
        self._calls = _CALLS | (_CUSTOM if custom else {})
        self._equations: list[JaxprEqn] = []
        self._consts: dict[Var, Any] = {}
        self._const_vars: dict[int, Var] = {}

    def run(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        self._inputs = [fresh_var(var.aval) for var in closed.jaxpr.invars]
        outputs = self._inline(closed.jaxpr, closed.consts, self._inputs)
        return close(self._inputs, outputs, self._equations, self._consts)

    def _inline(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        env: dict[Var, Any] = dict(zip(jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            if id(value) not in self._const_vars:
                self._const_vars[id(value)] = fresh_var(var.aval)
                self._consts[self._const_vars[id(value)]] = value
            env[var] = self._const_vars[id(value)]

        def read(atom: Any) -> Any:
            return atom if is_literal(atom) else env[atom]

        for equation in jaxpr.eqns:
            atoms = [read(atom) for atom in equation.invars]
            env.update(zip(equation.outvars, self._equation(equation, atoms), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: JaxprEqn, operands: list[Any]) -> list[Any]:
        """Add the equations that compute an equation's results; return the atoms of the results."""
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
                return self._splice(functools.partial(written_out, **equation.params), operands)
        replacement = None if self._row_numbers is None else self._row_numbers.replace(equation, operands, self._inputs)
        if replacement is not None:
            with as_written_at(equation):
                return self._splice(*replacement)
        if self._callers and not written_somewhere(equation):
            equation = written_at(equation, self._callers[-1])
        results = [fresh_var(var.aval) for var in equation.outvars]
        self._equations.append(replace_equation(equation, operands, results))
        return list(results)

    def _called(self, call: JaxprEqn, jaxpr: Jaxpr, consts: Sequence[Any], operands: list[Any]) -> list[Any]:
        """Inline a call; equations without a source line, which the library traced once, get the line of the call."""
        known = written_somewhere(call)
        if known:
            self._callers.append(call)
        results = self._inline(jaxpr, consts, operands)
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
            rows = [self._splice(_take(step), [atom])[0] for atom in stacked]
            results = self._inline(body.jaxpr, body.consts, [*consts, *carry, *rows])
            carry, steps[step] = results[: len(carry)], results[len(carry) :]
        outputs = []
        for k, var in enumerate(equation.outvars[len(carry) :]):
            if length == 0:
                outputs.append(
                    self._splice(functools.partial(jnp.zeros, type_of(var).shape, type_of(var).dtype), [])[0]
                )
            else:
                outputs.append(self._splice(_stack, [row[k] for row in steps if row is not None])[0])
        return [*carry, *outputs]

    def _splice(self, fun: Any, operands: list[Any]) -> list[Any]:
        """Inline a small function of the operands."""
        closed = make_jaxpr_of(fun, *(jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) for a in operands))
        return self._inline(closed.jaxpr, closed.consts, operands)


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
