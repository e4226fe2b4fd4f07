"""Sizes of values, for given numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dorylax.jax_internals import is_key, size_at

_KEY_BYTES = 8  # a threefry key is two 32-bit words


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
