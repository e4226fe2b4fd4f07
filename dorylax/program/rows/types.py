"""What the row check knows of a value.

A value either has no rows, or has them along one axis, or is a sum over them. Which axis that is can be read off the
shape (`axes.row_axis`), because numbers of vertices and edges are symbols; what has to be *proved* is that row r of a
value depends on row r of the inputs alone, and that is what a `Rows` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.symbols import Space


@final
@dataclass(frozen=True)
class Free:
    """Without rows: parameters, constants, keys, the number of vertices, and what is computed from those.

    Attributes:
        zero: whether every element is known to be 0 (or NaN, as 0 · ∞ is): adding it once for each part of the rows is
            then the same as adding it once.
    """

    zero: bool = field(default=False, compare=False)


@final
@dataclass(frozen=True)
class Rows:
    """Rows computed independently of one another.

    Attributes:
        space: whether a row belongs to a vertex or to an edge.
        axis: the axis of size factor·n.
        factor: how many consecutive entries of that axis belong to each row.
    """

    space: Space
    axis: int
    factor: int = 1


class Origin(NamedTuple):
    """Where values of different rows were added up, for messages."""

    equation: JaxprEqn
    callers: tuple[JaxprEqn, ...]  # the calls that the equation is inside of, outermost first
    space: Space
    how: str


@final
@dataclass(frozen=True)
class Summed:
    """A sum over rows: what is computed from each part of the rows adds up to it. Only linear operations keep that true.

    Attributes:
        origin: where the sum was taken.
    """

    origin: Origin | None = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True)
class GraphArray:
    """One of the five arrays of the graph's structure: for graph operators only."""


RowType = Free | Rows | Summed | GraphArray
