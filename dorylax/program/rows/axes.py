"""Finds the axis of a shape that counts rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dorylax.errors import InputError
from dorylax.jax_internals import multiple_of, symbols_of
from dorylax.program.jaxpr.symbols import SYMBOLS, Space
from dorylax.program.rows.types import Rows


def row_axis(shape: Sequence[Any], *, vertices: str = SYMBOLS["vertex"], edges: str = SYMBOLS["edge"]) -> Rows | None:
    """Return the axis of a shape that counts vertices or edges; None if all its sizes are numbers.

    Args:
        shape: Sizes, each a number or an expression of symbols.
        vertices: Symbol for the number of vertices.
        edges: Symbol for the number of edges.

    Raises:
        InputError: There are two such axes, or a size is not a constant multiple of one symbol.
    """
    return read_axis(shape, {vertices: "vertex", edges: "edge"})


def read_axis(shape: Sequence[Any], spaces: Mapping[str, Space]) -> Rows | None:
    """Run `row_axis` for symbols of these spaces."""
    found: Rows | None = None
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            continue
        rows = multiple_of(size)
        if rows is None or rows[0] not in spaces or rows[1] < 1:
            if not symbols_of(size):
                continue
            raise InputError(
                f"axis {axis} of shape {shown(shape)} has size {size}: rows can be counted only by a constant multiple "
                "of the number of vertices or edges"
            )
        if found is not None:
            raise InputError(f"shape {shown(shape)} has two axes of rows, {found.axis} and {axis}")
        found = Rows(spaces[rows[0]], axis, rows[1])
    return found


def has_symbols(value: Any) -> bool:
    """Whether a parameter of an equation, or an element of it, is a symbolic size."""
    if isinstance(value, str | bytes | int | float | bool | None):
        return False
    if isinstance(value, Mapping):
        return any(has_symbols(part) for part in value.values())
    if isinstance(value, Iterable) and isinstance(value, tuple | list | set | frozenset):
        return any(has_symbols(part) for part in value)
    return bool(symbols_of(value))


def shown(shape: Sequence[Any]) -> str:
    """Format a shape for messages."""
    return "[" + ", ".join(map(str, shape)) + "]"
