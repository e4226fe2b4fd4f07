"""The small arrays of a checkpoint, one behind the other in a single array of bytes; large ones stay as they are.

Whatever its size, each array that Orbax saves costs about a millisecond, and some hundred bytes that TensorStore keeps until
the process ends. A pipeline has hundreds of small ones in each checkpoint, and a long run thousands of checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

PACKED = "packed"
"""The group of the array of bytes, beside the groups of the arrays that are stored as they are."""

SMALL = 2**16
"""Bytes from which on an array is stored as it is. What is packed is copied, so few large arrays must not be."""

_BYTES = "bytes"

Index = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Group → name → `shape`, `dtype`, and `offset`, in bytes, of an array that is packed; JSON values."""


def pack(arrays: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, np.ndarray]], Index]:
    """What to store for arrays.

    Args:
        arrays: group → name → array (NumPy or JAX).

    Returns:
        The arrays to store, by group and name, none of size zero; and the index, from which `unpack` makes what was given.

    Raises:
        ValueError: a group is called `packed`.
    """
    if PACKED in arrays:
        raise ValueError(f"no group of arrays may be called {PACKED!r}")
    stored: dict[str, dict[str, np.ndarray]] = {group: {} for group in arrays}
    index: dict[str, dict[str, dict[str, Any]]] = {group: {} for group in arrays}
    parts: list[np.ndarray] = []
    offset = 0
    for group, named in arrays.items():
        for name, given in named.items():
            array = np.asarray(given)
            entry = index[group][name] = {"shape": list(array.shape), "dtype": array.dtype.name}
            if not array.size:  # its shape says everything, and Orbax refuses it
                continue
            if array.nbytes < SMALL and _is_plain(array.dtype):
                entry["offset"] = offset
                offset += array.nbytes
                parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            else:
                stored[group][name] = array
    if parts:
        stored[PACKED] = {_BYTES: np.concatenate(parts)}
    return stored, index


def stored_names(index: Index) -> dict[str, list[str]]:
    """Group → names of the arrays that `pack` gave to store."""
    names = {
        group: [name for name, entry in named.items() if 0 not in entry["shape"] and "offset" not in entry]
        for group, named in index.items()
    }
    if any("offset" in entry for named in index.values() for entry in named.values()):
        names[PACKED] = [_BYTES]
    return names


def unpack(index: Index, stored: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """The arrays that `pack` was given, bit for bit.

    Args:
        index: from `pack`. One without any `offset` (of a checkpoint of schema 1) has every array stored as it is.
        stored: the arrays of `stored_names`.

    Raises:
        ValueError, KeyError: the index is not that of these arrays.
    """

    def array(group: str, name: str, entry: Mapping[str, Any]) -> np.ndarray:
        shape = tuple(entry["shape"])
        if 0 in shape:
            return np.zeros(shape, entry["dtype"])
        if "offset" not in entry:
            return np.asarray(stored[group][name])
        dtype, begin = np.dtype(entry["dtype"]), entry["offset"]
        size = dtype.itemsize * math.prod(shape)
        # A copy: aligned, and it does not keep all the others in memory.
        part: np.ndarray = np.asarray(stored[PACKED][_BYTES])[begin : begin + size].copy().view(dtype)
        return part.reshape(shape)

    return {group: {name: array(group, name, entry) for name, entry in named.items()} for group, named in index.items()}


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether its name says everything about it: native numbers, also those of ml_dtypes, of a fixed size each."""
    return bool(dtype.isbuiltin) and dtype.isnative and not dtype.hasobject
