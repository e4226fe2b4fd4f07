"""Excludes padding from sums over rows.

A stage is called with a fixed number of rows; missing rows are filled with copies of a real row. Before rows are summed,
padding rows are replaced by zeros: inputs "real", True for every row of the graph, mark the others. Cotangents of 0 would
not suffice, since a custom derivative may return any value for them. Without padding, XLA drops the selection.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, type_of, variables
from dorylax.program.jaxpr.builder import Builder
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tracing.traced import Input


def without_padding(closed: ClosedJaxpr, inputs: tuple[Input, ...], types: dict[Var, RowType]) -> ClosedJaxpr:
    """Insert a selection of real rows before each sum over rows.

    Args:
        closed: Flat jaxpr of loss and gradients.
        inputs: Descriptions of its inputs.
        types: Row types of its values.
    """
    entries = list(zip(closed.jaxpr.invars, inputs, strict=True))
    real = {entry.space: var for var, entry in entries if entry.role == "real"}
    cotangents = {var for var, entry in entries if entry.role == "weights"}
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if any(var in cotangents for var in variables(equation.invars)):
            cotangents.update(equation.outvars)
        if not any(isinstance(types[var], Summed) for var in equation.outvars):
            builder.keep(equation)
            continue
        rows = [k for k, atom in enumerate(equation.invars) if _has_rows(atom, types)]
        # Values independent of the cotangent are those of the copied row, which are finite if the model is.
        chosen = [k for k in rows if equation.invars[k] in cotangents] or rows
        operands = {k: _selected(builder, equation, k, types, real) for k in chosen}
        builder.keep(equation, operands)
    return builder.finish()


def _has_rows(atom: Any, types: dict[Var, RowType]) -> bool:
    return any(isinstance(types[var], Rows) for var in variables([atom]))


def _selected(builder: Builder, equation: JaxprEqn, place: int, types: dict[Var, RowType], real: Any) -> Any:
    atom = equation.invars[place]
    found = types[variables([atom])[0]]
    assert isinstance(found, Rows)
    select = _select(tuple(type_of(atom).shape), found.axis, found.factor)
    return builder.call(select, [builder.read(atom), builder.read(real[found.space])], equation)


@functools.lru_cache(maxsize=256)
def _select(shape: tuple[Any, ...], axis: int, factor: int) -> Callable[[Any, Any], Any]:
    """Return one function for equal shapes, so that JAX traces it once."""

    def select(x: Any, mask: Any) -> Any:
        if factor != 1:
            mask = jax.lax.broadcast_in_dim(mask, (*mask.shape, factor), (0,))
            mask = jax.lax.reshape(mask, (shape[axis],))
        mask = jax.lax.broadcast_in_dim(mask, shape, (axis,))
        return jax.lax.select(mask, x, jax.lax.full(shape, jnp.zeros((), x.dtype), x.dtype))

    return select
