"""The two symbols of a traced model: n stands for the number of vertices, e for the number of edges."""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

from jax import export

from dorylax.jax_internals import multiple_of

Space = Literal["vertex", "edge"]
"""What rows belong to."""

SYMBOLS: dict[Space, str] = {"vertex": "n", "edge": "e"}
_SPACES: dict[str, Space] = {symbol: space for space, symbol in SYMBOLS.items()}


class Dimensions(NamedTuple):
    """The symbolic sizes of one trace; those of another trace are other symbols."""

    vertices: Any
    edges: Any


def new_dimensions() -> Dimensions:
    """Fresh symbols n and e of one scope."""
    return Dimensions(*export.symbolic_shape(", ".join(SYMBOLS.values())))


@functools.lru_cache(maxsize=1024)
def row_space(dim: Any) -> tuple[Space, int] | None:
    """The space and factor of a dimension that counts rows, factor·n or factor·e; None for any other."""
    found = multiple_of(dim)
    return None if found is None else (_SPACES[found[0]], found[1])
