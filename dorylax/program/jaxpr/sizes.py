"""Sizes of values, for numbers of rows that are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dorylax.jax_internals import is_key, size_at

_KEY_BYTES = 8  # a threefry key is two 32-bit words


def elements(aval: Any, sizes: Mapping[str, int]) -> int:
    """The number of elements of a value.

    Args:
        aval: its abstract value, whose shape may hold symbols.
        sizes: the value of each symbol: `{"n": V, "e": E}`.
    """
    return math.prod(int(size_at(dim, sizes)) for dim in aval.shape)


def value_bytes(aval: Any, sizes: Mapping[str, int]) -> int:
    """Bytes of a value: elements × bytes of one; a random key counts as 8 bytes. Arguments as for `elements`."""
    return elements(aval, sizes) * item_bytes(aval)


def item_bytes(aval: Any) -> int:
    """Bytes of one element of a value."""
    return _KEY_BYTES if is_key(aval) else int(aval.dtype.itemsize)
