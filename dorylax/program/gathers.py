"""Cheaper gathers for one machine: `fold` merges the arithmetic around a gather into it, `narrow` stores rows in bfloat16.

    scale ⊙ (gather_sum(h) + loops ⊙ h)

is the usual normalisation of layers: GCN and its kin, means, GIN without a scale. XLA cannot fuse other operations with a
custom call, so each product and sum here would read and write V rows again. `fold` finds this in a flat jaxpr, forwards or
backwards, and writes `gather_scaled` in its place. It changes only rounding. It must follow differentiation, since
`gather_scaled` lacks a derivative.

The bytes of the rows determine the cost of a gather. `narrow` rounds each row once before it is gathered, including its own
term in `gather_scaled`; sums, factors and results stay float32. Gathers with weights per edge, extrema and attention stay
unchanged.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import jax.numpy as jnp
import numpy as np
from jax import lax

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, is_literal, type_of, variables
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.scaled import gather_scaled
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.rewrite import Builder, makers, without_dead

Gathered = Literal["float32", "bfloat16"]
"""Type in which one machine stores rows that are summed over neighbours."""

_SUMS = ("add", "add_any")
_ONES = None  # as loops: no array to read


def fold(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same function, with sums over neighbours, own rows and row factors merged into one operator if they meet.

    Args:
        closed: A flat jaxpr of definite sizes.
    """
    reading = _Reading(closed)
    equations = closed.jaxpr.eqns
    matches = [found for eqn in equations if (found := reading.match(eqn)) is not None]
    ends = {found.end.outvars[0]: found for found in matches}
    builder = Builder(closed)
    for equation in equations:
        found = ends.get(equation.outvars[0]) if equation.outvars else None
        if found is None:
            builder.keep(equation)
        else:
            builder.replace(equation.outvars[0], _write(builder, found))
    return without_dead(builder.finish())


@final
@dataclasses.dataclass(frozen=True)
class _Match:
    """Equations to fold.

    Attributes:
        gather: The sum over neighbours.
        end: The last equation that is folded with it.
        own: Whether the row's own values are added.
        loops: Factors of the row's own values, a column or a scalar; `_ONES`: all 1.
        factors: Multipliers and divisors of the sum, columns or scalars.
    """

    gather: JaxprEqn
    end: JaxprEqn
    own: bool
    loops: Any
    factors: tuple[tuple[str, Any], ...]


class _Reading:
    """Definitions and readers of the values of a jaxpr."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self._made = makers(closed.jaxpr.eqns)
        self._readers: dict[Var, list[JaxprEqn]] = {}
        for equation in closed.jaxpr.eqns:
            for var in variables(equation.invars):
                self._readers.setdefault(var, []).append(equation)
        self._outputs = frozenset(variables(closed.jaxpr.outvars))

    def match(self, gather: JaxprEqn) -> _Match | None:
        """Return the equations to fold with a gather; None for other equations, or if there are none."""
        if gather.primitive is not gather_sum.primitive:
            return None
        rows = self._rows_of(gather.invars[0])
        value, found = gather.outvars[0], _Match(gather, gather, own=False, loops=_ONES, factors=())
        while (reader := self._only_reader(value)) is not None:
            name = reader.primitive.name
            if name == "reshape" and _keeps_rows(reader):
                value = reader.outvars[0]
                continue
            if type_of(reader.outvars[0]).shape != type_of(value).shape or len(reader.invars) != 2:
                break
            place = 0 if reader.invars[0] is value else 1
            other = reader.invars[1 - place]
            if name in _SUMS and not found.own and not found.factors:
                known, loops = self._loops(other, rows, type_of(value).shape)
                if not known:
                    break
                found = dataclasses.replace(found, end=reader, own=True, loops=loops)
            elif name == "mul" or (name == "div" and place == 0):
                factor = self._column(other, type_of(value).shape[0])
                if factor is None:
                    break
                found = dataclasses.replace(found, end=reader, factors=(*found.factors, (name, factor)))
            else:
                break
            value = reader.outvars[0]
        return None if found.end is gather else found

    def _only_reader(self, var: Var) -> JaxprEqn | None:
        readers = self._readers.get(var, [])
        return readers[0] if len(readers) == 1 and var not in self._outputs else None

    def _rows_of(self, atom: Any) -> Any:
        """Return the atom from which another is made by reshapes within rows."""
        while not is_literal(atom) and (made := self._made.get(atom)) is not None:
            if made.primitive.name != "reshape" or not _keeps_rows(made):
                break
            atom = made.invars[0]
        return atom

    def _loops(self, term: Any, rows: Any, shape: tuple[int, ...]) -> tuple[bool, Any]:
        """Return whether a term of this shape is `loops ⊙ rows`, and the loops."""
        if type_of(term).shape != shape:
            return False, None
        term = self._rows_of(term)
        if term is rows:
            return True, _ONES
        made = None if is_literal(term) else self._made.get(term)
        if made is None or made.primitive.name != "mul":
            return False, None
        for place in (0, 1):
            own, other = made.invars[place], made.invars[1 - place]
            if self._rows_of(own) is rows and type_of(own).shape == type_of(term).shape:
                loops = self._column(other, shape[0])
                if loops is not None:
                    return True, _ONES if self._constant(loops) == 1 else loops
        return False, None

    def _column(self, atom: Any, count: int) -> Any:
        """Return the numbers, one per row or one for all rows, from which an atom is broadcast; None if there are none."""
        shape = type_of(atom).shape
        if shape == () or (shape[0] == count and all(size == 1 for size in shape[1:])):
            return atom
        made = None if is_literal(atom) else self._made.get(atom)
        if made is None or made.primitive.name != "broadcast_in_dim":
            return None
        given, axes = made.invars[0], made.params["broadcast_dimensions"]
        if len(axes) == 0 or (axes[0] == 0 and type_of(given).shape[0] == count):
            return self._column(given, count)
        return None

    def _constant(self, atom: Any) -> float | None:
        """Return the number that all elements of an atom equal; None if unknown."""
        while not is_literal(atom):
            made = self._made.get(atom)
            if made is None or made.primitive.name not in ("broadcast_in_dim", "reshape"):
                return None
            atom = made.invars[0]
        return float(atom.val) if np.size(atom.val) == 1 else None


def _keeps_rows(reshape: JaxprEqn) -> bool:
    before, after = type_of(reshape.invars[0]).shape, type_of(reshape.outvars[0]).shape
    return reshape.params["dimensions"] is None and len(before) > 0 and before[:1] == after[:1]


def _write(builder: Builder, found: _Match) -> Any:
    """Add the operator; return its result in the shape of the last equation's result."""
    rows, *structure = found.gather.invars
    count, dtype = type_of(found.gather.outvars[0]).shape[0], type_of(rows).dtype
    shape = type_of(found.end.outvars[0]).shape
    loops = [] if found.loops is _ONES else [found.loops]
    factors = [factor for _, factor in found.factors]

    def folded(rows: Any, *rest: Any) -> Any:
        arrays, columns = rest[:5], [_spread(column, count) for column in rest[5:]]
        given, scale = columns[: len(loops)], _product(found, columns[len(loops) :])
        nothing = lax.full((0,), 0, dtype)
        y = gather_scaled(
            rows,
            given[0] if given else nothing,
            nothing if scale is None else scale,
            Structure(*arrays),
            direction=found.gather.params["direction"],
            own=found.own,
            dtype=dtype,
        )
        return lax.reshape(y, shape)

    operands = [builder.read(atom) for atom in (rows, *structure, *loops, *factors)]
    return builder.call(folded, operands, found.end)


def _spread(column: Any, count: int) -> Any:
    """Return a column or scalar as `[V]`."""
    return lax.broadcast(column, (count,)) if column.ndim == 0 else lax.reshape(column, (count,))


def _product(found: _Match, columns: list[Any]) -> Any:
    scale: Any = None
    for (name, _), column in zip(found.factors, columns, strict=True):
        if name == "div":
            scale = lax.div(lax.full_like(column, 1) if scale is None else scale, column)
        else:
            scale = column if scale is None else lax.mul(scale, column)
    return scale


def narrow(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same function except for rounding: sums over neighbours of float32 rows read bfloat16.

    Args:
        closed: A flat jaxpr, already differentiated.
    """
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if _takes_float32(equation):
            operands = [builder.read(atom) for atom in equation.invars]
            builder.replace(equation.outvars[0], builder.call(_stored(equation), operands, equation))
        else:
            builder.keep(equation)
    return builder.finish()


def _takes_float32(equation: JaxprEqn) -> bool:
    sums = equation.primitive in (gather_sum.primitive, gather_scaled.primitive)
    return sums and type_of(equation.invars[0]).dtype == jnp.float32


def _stored(equation: JaxprEqn) -> Any:
    def sum_of(h: Any, *structure: Any) -> Any:
        ones = lax.full((0,), 0, jnp.float32)
        params = {"direction": equation.params["direction"], "own": False, "dtype": jnp.dtype(jnp.float32)}
        return gather_scaled(_rounded(h), ones, ones, Structure(*structure), **params)

    def scaled(h: Any, loops: Any, scale: Any, *structure: Any) -> Any:
        return gather_scaled(_rounded(h), loops, scale, Structure(*structure), **equation.params)

    return sum_of if equation.primitive is gather_sum.primitive else scaled


def _rounded(h: Any) -> Any:
    return lax.convert_element_type(h, jnp.bfloat16)
