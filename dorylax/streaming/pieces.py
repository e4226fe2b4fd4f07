"""Runs a stage on the rows of a slice piece by piece, inside one call.

A stage's intermediate values, such as logits, exponentials and their gradients, are several times as wide as its operands
and results. Computed for a whole slice, they exceed a core's cache and crowd concurrent gathers out of the shared cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dorylax.jax_internals import ClosedJaxpr, is_key, jaxpr_as_fun, size_at, symbols_of, type_of
from dorylax.program.jaxpr.instantiate import instantiate
from dorylax.program.rows.types import Rows, RowType, Summed

BYTES = 1 << 17
"""Size of a piece of the widest intermediate value. A stage makes a few of them; a core's own cache has 512 KiB or more."""
_FEWEST_ROWS = 64


def evaluated(
    closed: ClosedJaxpr, symbol: str, rows: int, reads: Sequence[RowType], writes: Sequence[RowType]
) -> Callable[..., Sequence[Any]]:
    """Return a stage's function for a number of rows, ready to compile.

    Sums over rows are added up piece by piece, in order.

    Args:
        closed: The stage, with `symbol` for the number of rows.
        symbol: Symbol of the stage's space.
        rows: Number of rows.
        reads: Row types of the operands.
        writes: Row types of the results.
    """
    results = closed.jaxpr.outvars

    def at(number: int) -> Callable[..., Sequence[Any]]:
        return jaxpr_as_fun(instantiate(closed, {symbol: number}))

    piece = _rows_of_piece(closed, symbol) or rows
    count, rest = divmod(rows, max(1, piece))
    plain = all(isinstance(kind, Rows | Summed) for kind in writes) and not any(map(is_key, map(type_of, results)))
    if count + bool(rest) <= 1 or not plain:
        return at(rows)
    one, last = at(piece), at(rest) if rest else None

    def of(values: Sequence[Any], first: Any, number: int) -> list[Any]:
        return [
            jax.lax.dynamic_slice_in_dim(value, first * kind.factor, number * kind.factor, kind.axis)
            if isinstance(kind, Rows)
            else value
            for value, kind in zip(values, reads, strict=True)
        ]

    def put(totals: Sequence[Any], found: Sequence[Any], first: Any) -> list[Any]:
        return [
            jax.lax.dynamic_update_slice_in_dim(total, value, first * kind.factor, kind.axis)
            if isinstance(kind, Rows)
            else total + value
            for total, value, kind in zip(totals, found, writes, strict=True)
        ]

    def whole(*values: Any) -> Sequence[Any]:
        nothing = [
            jnp.zeros([int(size_at(dim, {symbol: rows})) for dim in type_of(atom).shape], type_of(atom).dtype)
            for atom in results
        ]
        found = jax.lax.fori_loop(
            0, count, lambda k, totals: put(totals, one(*of(values, k * piece, piece)), k * piece), nothing
        )
        return found if last is None else put(found, last(*of(values, count * piece, rest)), count * piece)

    return whole


def _rows_of_piece(closed: ClosedJaxpr, symbol: str) -> int | None:
    """Number of rows per piece, a power of two, so that it is a multiple of the vector width; None: all rows.

    None if no intermediate value is wider than the operands and results, which pass through the caches anyway.
    """
    jaxpr = closed.jaxpr
    made = _widest(symbol, (var for equation in jaxpr.eqns for var in equation.outvars))
    if made <= _widest(symbol, (*jaxpr.invars, *jaxpr.outvars)):
        return None
    return max(_FEWEST_ROWS, 1 << max(1, BYTES // made).bit_length() - 1)


def _widest(symbol: str, values: Iterable[Any]) -> int:
    """Bytes per row of the widest value; 0 if none has rows."""
    avals = [type_of(value) for value in values]
    return max(
        (
            math.prod(int(size_at(dim, {symbol: 1})) for dim in aval.shape) * aval.dtype.itemsize
            for aval in avals
            if any(symbols_of(dim) for dim in aval.shape)
        ),
        default=0,
    )
