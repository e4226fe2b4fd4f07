"""Types of values in the row check.

A value is without rows, has rows along one axis, or is a sum over rows. The shape shows the axis (`axes.row_axis`), because
numbers of vertices and edges are symbols. The check must *prove* that row r of a value depends only on row r of the inputs;
the type `Rows` states this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.symbols import Space


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
