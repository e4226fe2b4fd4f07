"""Arrays without values, which timing runs pass from task to task.

An abstract array has a shape, a dtype and a number of bytes like any other, and takes no memory: all its elements are the
same read-only cell. Slices of it are abstract again. The functions here are for code that computes with both kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

_CELLS: dict[np.dtype[Any], np.ndarray] = {}


def abstract_array(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an array of this shape without values; equal arguments give the same array."""
    return _abstract_array(tuple(shape), np.dtype(dtype))


@functools.lru_cache(2**14)
def _abstract_array(shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    cell = _CELLS.get(kind)
    if cell is None:
        cell = _CELLS[kind] = np.zeros(1, kind)
        cell.flags.writeable = False
    return np.ndarray(shape, kind, buffer=cell, strides=(0,) * len(shape))


def is_abstract(array: Any) -> bool:
    """Whether an array has no values: it is an `abstract_array` or a view of one."""
    return isinstance(array, np.ndarray) and array.base is _CELLS.get(array.dtype, array)


def taken(rows: np.ndarray, places: np.ndarray, first: int = 0) -> np.ndarray:
    """Return copies of some rows: `rows[places - first]`."""
    if is_abstract(rows):
        return abstract_array((len(places), *rows.shape[1:]), rows.dtype)
    found: np.ndarray = rows[places - first if first else places]
    return found
