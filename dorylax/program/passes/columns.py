"""Equations that act only on rows, and so commute with a product from the right.

The module recognises them, and writes them again for rows of another width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from dorylax.jax_internals import JaxprEqn, Var, is_literal, type_of
from dorylax.program.jaxpr.builder import Builder
from dorylax.program.jaxpr.graph_operators import is_graph_operator, operator_of
from dorylax.program.jaxpr.symbols import row_space

Makers = Mapping[Var, JaxprEqn]


def is_linear_gather(equation: JaxprEqn) -> bool:
    """Whether the equation is a graph operator that commutes with a product from the right."""
    return is_graph_operator(equation) and operator_of(equation).commutes_with_products


def is_columns(shape: Sequence[Any]) -> bool:
    """Whether a shape is rows by columns, `[n, F]` or `[n, 1, F]`."""
    return len(shape) >= 2 and row_space(shape[0]) is not None and all(_is_one(size) for size in shape[1:-1])


def linear_operands(equation: JaxprEqn, makers: Makers) -> list[tuple[int, ...]]:
    """Return the sets of operands in which the equation is linear while acting only on rows; each tuple is one such set.

    Args:
        equation: Any equation.
        makers: Equation that made each value.
    """
    name, operands = equation.primitive.name, equation.invars
    if len(equation.outvars) != 1 or not is_columns(type_of(equation.outvars[0]).shape):
        return []
    if is_linear_gather(equation):
        return [(0,)] if is_columns(type_of(operands[0]).shape) else []
    if name in ("neg", "copy"):
        return [(0,)]
    if name in ("reshape", "squeeze", "expand_dims"):
        return [(0,)] if _same_columns(operands[0], equation) else []
    if name == "broadcast_in_dim":
        dims = equation.params["broadcast_dimensions"]
        kept = len(dims) == type_of(operands[0]).ndim and type_of(operands[0]).ndim >= 2
        return [(0,)] if kept and int(dims[0]) == 0 and _same_columns(operands[0], equation) else []
    if name in ("add", "sub", "add_any"):
        alike = all(not is_literal(a) and type_of(a).shape == type_of(equation.outvars[0]).shape for a in operands)
        return [(0, 1)] if alike else []
    if name in ("mul", "div"):
        sides = (0, 1) if name == "mul" else (0,)
        return [
            (side,)
            for side in sides
            if not is_literal(operands[side])
            and type_of(operands[side]).shape == type_of(equation.outvars[0]).shape
            and _scale(operands[1 - side], makers) is not None
        ]
    return []


def write_again(builder: Builder, equation: JaxprEqn, linear: Mapping[int, Any], makers: Makers, width: int) -> Any:
    """Write a commuting equation again for rows of another width.

    Args:
        builder: Builder of the new jaxpr.
        equation: The equation.
        linear: Replacements of its linear operands, by position.
        makers: Equation that made each value.
        width: New number of columns.

    Returns:
        The atom of its result.
    """
    name, params = equation.primitive.name, equation.params
    shape = (*type_of(equation.outvars[0]).shape[:-1], width)
    if is_linear_gather(equation):
        operands = [linear[0], *map(builder.read, equation.invars[1:])]
        return builder.call(lambda *xs: equation.primitive.bind(*xs, **params), operands, equation)
    if name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim"):
        return builder.call(lambda x: jax.lax.reshape(x, shape), [linear[0]], equation)
    if name in ("mul", "div"):
        (side,) = linear
        atom, dims = _scale(equation.invars[1 - side], makers) or (None, None)

        def scale(x: Any, factor: Any) -> Any:
            if dims is not None:
                factor = jax.lax.broadcast_in_dim(factor, shape, dims)
            return equation.primitive.bind(*((x, factor) if side == 0 else (factor, x)), **params)

        return builder.call(scale, [linear[side], builder.read(atom)], equation)
    return builder.call(
        lambda *xs: equation.primitive.bind(*xs, **params), [linear[k] for k in sorted(linear)], equation
    )


def _scale(atom: Any, makers: Makers) -> tuple[Any, tuple[int, ...] | None] | None:
    """Return an operand that is equal in all columns, as its source and how to broadcast it; None if columns may differ."""
    if is_literal(atom) or type_of(atom).ndim == 0 or _is_one(type_of(atom).shape[-1]):
        return atom, None
    maker = makers.get(atom)
    if maker is None or maker.primitive.name != "broadcast_in_dim":
        return None
    source, dims = maker.invars[0], tuple(int(dim) for dim in maker.params["broadcast_dimensions"])
    last = type_of(atom).ndim - 1
    if last in dims and not _is_one(type_of(source).shape[dims.index(last)]):
        return None
    return source, dims


def _same_columns(atom: Any, equation: JaxprEqn) -> bool:
    shape, new = type_of(atom).shape, type_of(equation.outvars[0]).shape
    return is_columns(shape) and shape[0] == new[0] and shape[-1] == new[-1]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
