"""The two symbols of a traced model, n vertices and e edges, and sizes of values for given numbers of both."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jax import export

from dorylax.jax_internals import is_key, multiple_of, size_at

Space = Literal["vertex", "edge"]
"""Owner of rows: vertices or edges."""

SYMBOLS: dict[Space, str] = {"vertex": "n", "edge": "e"}
_KEY_BYTES = 8  # a threefry key is two 32-bit words
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


def elements(aval: Any, sizes: Mapping[str, int]) -> int:
    """Return the number of elements of a value.

    Args:
        aval: Its abstract value, whose shape may contain symbols.
        sizes: Value of each symbol: `{"n": V, "e": E}`.
    """
    return math.prod(int(size_at(dim, sizes)) for dim in aval.shape)


def value_bytes(aval: Any, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a value; a random key counts as 8 bytes. Arguments as for `elements`."""
    return elements(aval, sizes) * item_bytes(aval)


def item_bytes(aval: Any) -> int:
    """Return the bytes of one element of a value."""
    return _KEY_BYTES if is_key(aval) else int(aval.dtype.itemsize)
