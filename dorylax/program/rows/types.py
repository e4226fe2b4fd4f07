"""Types of values in the row check.

A value is without rows, has rows along one axis, or is a sum over rows. The shape shows the axis (`read_axis`), because
numbers of vertices and edges are symbols. The check must *prove* that row r of a value depends only on row r of the inputs;
the type `Rows` states this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from dorylax.errors import InputError
from dorylax.jax_internals import JaxprEqn, multiple_of, symbols_of
from dorylax.program.jaxpr.symbols import SYMBOLS, Space


@final
@dataclass(frozen=True)
class Free:
    """A value without rows: parameters, constants, keys, the number of vertices, and values computed from those.

    Attributes:
        zero: Whether every element is known to be 0 (or NaN, from 0 · ∞). Adding it once for each part of the rows is then
            the same as adding it once.
    """

    zero: bool = field(default=False, compare=False)


@final
@dataclass(frozen=True)
class Rows:
    """Rows computed independently of one another.

    Attributes:
        space: Whether a row belongs to a vertex or to an edge.
        axis: Axis of size factor·n.
        factor: Number of consecutive entries of that axis per row.
    """

    space: Space
    axis: int
    factor: int = 1


class Origin(NamedTuple):
    """Place where values of different rows were added up, for messages."""

    equation: JaxprEqn
    callers: tuple[JaxprEqn, ...]  # calls that contain the equation, outermost first
    space: Space
    how: str


@final
@dataclass(frozen=True)
class Summed:
    """A sum over rows, computed in parts that add up to it. Only linear operations preserve that.

    Attributes:
        origin: Place where the sum was taken.
    """

    origin: Origin | None = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True)
class GraphArray:
    """One of the five arrays of the graph's structure, for graph operators only."""


RowType = Free | Rows | Summed | GraphArray


_SPACES: dict[str, Space] = {symbol: space for space, symbol in SYMBOLS.items()}


def read_axis(shape: Sequence[Any]) -> Rows | None:
    """Return the axis of a shape that counts vertices or edges; None if all its sizes are numbers.

    Raises:
        InputError: There are two such axes, or a size is not a constant multiple of one symbol.
    """
    found: Rows | None = None
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            continue
        rows = multiple_of(size)
        if rows is None or rows[0] not in _SPACES or rows[1] < 1:
            if not symbols_of(size):
                continue
            raise InputError(
                f"axis {axis} of shape {shown(shape)} has size {size}: rows can be counted only by a constant multiple "
                "of the number of vertices or edges"
            )
        if found is not None:
            raise InputError(f"shape {shown(shape)} has two axes of rows, {found.axis} and {axis}")
        found = Rows(_SPACES[rows[0]], axis, rows[1])
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
