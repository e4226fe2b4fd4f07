"""Checks of users' arrays: pure functions that pass, or raise a `GraphError` naming array, position and value.

`check_room` and `check_disk` compare sizes with the memory and the disk before these are used. Builders and `Dataset`
call the checks, nothing below the builders checks again. Checks read large arrays span by span.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dorylax.errors import InputError, named
from dorylax.graph.rows import row_spans, spans
from dorylax.machine import memory_limit

MAX_VERTICES = int(np.iinfo(np.int32).max)  # vertex ids are int32
MAX_CLASSES = int(np.iinfo(np.int32).max)  # labels are int32
CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")
"""Control characters, which a terminal obeys when a name is printed."""


GraphError = InputError
"""A graph or data set is not well formed; the message names the array, the position and the value."""


def as_integers(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Return a one-dimensional integer array, without a copy of one. Raises a GraphError for other shapes or elements."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim != 1:
        raise GraphError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size == 0 and not isinstance(values, np.ndarray):  # the type of an empty list is arbitrary
        return array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise GraphError(f"{name} must hold integers, got {array.dtype}")
    return array


def check_printable(what: str, name: str) -> None:
    """Pass for a name without control characters, which a terminal would execute."""
    if CONTROL.search(name):
        raise GraphError(f"{what} {name!r} has a control character: rename it")


def check_num_vertices(num_vertices: int) -> None:
    """A vertex count is not negative and fits int32 ids."""
    if not 0 <= num_vertices <= MAX_VERTICES:
        raise GraphError(f"num_vertices must be in 0 … {MAX_VERTICES} (vertex ids are int32), got {num_vertices}")


def check_length(name: str, array: np.ndarray, expected: int, per: str) -> None:
    """The first axis has the expected length; `per` says why, for example "one per vertex"."""
    if array.ndim == 0:
        raise GraphError(f"{name} is a single value, {array!r}: expected an array of length {expected}, {per}")
    if len(array) != expected:
        raise GraphError(f"{name} has length {len(array)}: expected {expected}, {per}")


def check_range(name: str, values: np.ndarray, size: int, size_name: str) -> None:
    """Every value is in 0 … size-1; `size_name` says what `size` is, for example "num_vertices"."""
    for start, stop in spans(len(values)):
        chunk = values[start:stop]
        if chunk.min() >= 0 and chunk.max() < size:
            continue
        position = start + int(np.flatnonzero((chunk < 0) | (chunk >= size))[0])
        value = values[position]
        fault = "negative" if value < 0 else "out of range"
        raise GraphError(f"{name}[{position}] = {value} is {fault}: must be ≥ 0 and < {size_name} = {size}")


def check_offsets(name: str, offsets: np.ndarray, num_entries: int, entries_name: str) -> None:
    """Offsets start at 0, never decrease, and end at the number of entries."""
    if len(offsets) == 0:
        raise GraphError(f"{name} has length 0: expected one more than the number of rows, so at least 1")
    if offsets[0] != 0:
        raise GraphError(f"{name}[0] = {offsets[0]}: must be 0")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        k = int(falls[0]) + 1
        raise GraphError(f"{name}[{k}] = {offsets[k]} is below {name}[{k - 1}] = {offsets[k - 1]}: must not decrease")
    if offsets[-1] != num_entries:
        raise GraphError(
            f"{name}[{len(offsets) - 1}] = {offsets[-1]}: must equal the length of {entries_name}, {num_entries}"
        )


def check_finite(name: str, matrix: np.ndarray, remedy: str = "replace or drop it") -> None:
    """No NaN, no infinity, in `[V, …]`; `remedy` is the advice."""
    _check_elements(name, matrix, np.isfinite, f"is not finite: {remedy}")


def as_held(name: str, array: np.ndarray, dtype: npt.DTypeLike, remedy: str = "replace or drop it") -> np.ndarray:
    """Return an array as bool, int32 or float32, without a copy of one that is that already.

    Raises a GraphError if a number is not finite (`remedy` is the advice), or does not fit.
    """
    if dtype == np.int32 and array.dtype != np.int32 and array.size:
        for extreme in (int(array.min()), int(array.max())):
            if not -(2**31) <= extreme < 2**31:
                raise GraphError(f"{name} holds {extreme}, which int32 does not: renumber, or give floating numbers")
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, and is then refused
        held = array.astype(dtype, copy=False)
    if held.dtype.kind == "f":
        check_finite(name, held, remedy)
    return held


def check_binary(name: str, matrix: np.ndarray) -> None:
    """Every element is 0 or 1."""
    fault = "is neither 0 nor 1, as multi-label labels must be"
    _check_elements(name, matrix, lambda part: (part == 0) | (part == 1), fault)


def check_permutation(name: str, order: np.ndarray, size: int) -> None:
    """`order` holds each of 0 … size-1 once."""
    check_length(name, order, size, "one per vertex")
    check_range(name, order, size, "num_vertices")
    there = np.zeros(size, bool)
    there[order] = True
    if not there.all():
        seen = np.full(size, -1, np.int64)
        seen[order] = np.arange(size)  # the last position of each value wins
        k = int(np.flatnonzero(seen[order] != np.arange(size))[0])
        raise GraphError(
            f"{name}[{k}] = {order[k]} is repeated at {name}[{seen[order[k]]}]: must list every vertex exactly once"
        )


def _check_elements(name: str, matrix: np.ndarray, is_right: Callable[[np.ndarray], np.ndarray], fault: str) -> None:
    for start, stop in row_spans(matrix):
        right = is_right(matrix[start:stop])
        if not right.all():
            row, *columns = np.argwhere(~right)[0].tolist()
            position = (start + row, *columns)
            raise GraphError(f"{name}[{', '.join(map(str, position))}] = {matrix[position]} {fault}")


def gibibytes(size: int) -> str:
    """A size in GiB, for messages."""
    return f"{size / 2**30:,.1f} GiB"


def check_room(what: str, size: int) -> None:
    """Pass if a size in bytes fits the memory of the machine, of the control group, and of the address space.

    `what` is the subject of the message, which continues with "takes … GiB of memory"; it may be empty.
    """
    limit = memory_limit()
    if limit is not None and size > limit.bytes:
        raise GraphError(
            f"{what}{' ' * bool(what)}takes {gibibytes(size)} of memory, and {limit.owner} has {gibibytes(limit.bytes)}"
        )


def check_disk(path: Path, size: int) -> None:
    """Pass if the disk of a path has room for a size in bytes.

    Raises an OSError that names the path if the disk has less room, or the parent folder is missing.
    """
    with named(path):
        free = shutil.disk_usage(path.absolute().parent).free
    if size > free:
        raise OSError(errno.ENOSPC, f"takes {gibibytes(size)}, and its disk has {gibibytes(free)} left", str(path))
