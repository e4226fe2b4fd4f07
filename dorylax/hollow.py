"""Arrays without values: what a run of timing alone hands from task to task.

A hollow array has a shape, a dtype and a number of bytes like any other, and takes no memory: all its elements are one and
the same, which cannot be written to. Slices of it are hollow again. The functions here are for code that computes with
arrays of either kind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

_CELLS: dict[np.dtype[Any], np.ndarray] = {}


def hollow(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of this shape without values; the same one each time."""
    return _hollow(tuple(shape), np.dtype(dtype))


@functools.lru_cache(2**14)
def _hollow(shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    cell = _CELLS.get(kind)
    if cell is None:
        cell = _CELLS[kind] = np.zeros(1, kind)
        cell.flags.writeable = False
    return np.ndarray(shape, kind, buffer=cell, strides=(0,) * len(shape))


def is_hollow(array: Any) -> bool:
    """Whether an array has no values: it is of `hollow`, or a view of one that is."""
    return isinstance(array, np.ndarray) and array.base is _CELLS.get(array.dtype, array)


def taken(rows: np.ndarray, places: np.ndarray, first: int = 0) -> np.ndarray:
    """`rows[places - first]`: copies of some rows."""
    if is_hollow(rows):
        return hollow((len(places), *rows.shape[1:]), rows.dtype)
    found: np.ndarray = rows[places - first if first else places]
    return found
