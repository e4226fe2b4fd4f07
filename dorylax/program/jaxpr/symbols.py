"""The two symbols of a traced model: n stands for the number of vertices, e for the number of edges."""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

from jax import export

from dorylax.jax_internals import multiple_of

Space = Literal["vertex", "edge"]
"""Owner of rows: vertices or edges."""

SYMBOLS: dict[Space, str] = {"vertex": "n", "edge": "e"}
_SPACES: dict[str, Space] = {symbol: space for space, symbol in SYMBOLS.items()}


class Dimensions(NamedTuple):
    """Symbolic sizes of one trace; another trace has different symbols."""

    vertices: Any
    edges: Any


def new_dimensions() -> Dimensions:
    """Create symbols n and e of one new scope."""
    return Dimensions(*export.symbolic_shape(", ".join(SYMBOLS.values())))


@functools.lru_cache(maxsize=1024)
def row_space(dim: Any) -> tuple[Space, int] | None:
    """Return the space and factor of a dimension that counts rows, factor·n or factor·e; None for any other."""
    found = multiple_of(dim)
    return None if found is None else (_SPACES[found[0]], found[1])
