"""Calls of a stage: operands cut and padded to a fixed number of rows, results cut back and joined.

Every back end calls stages through this module: graph servers, workers, and sweeps over data on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax import aligned
from dorylax.abstract_array import abstract_array, is_abstract


class OperandSource(NamedTuple):
    """Source of an operand, and the layout of its rows.

    Attributes:
        source: Kind of the operand: "rows" of the interval, "weights" for a leaf of the parameters, or "free" for any other
            value without rows.
        axis: Axis of the rows ("rows" only).
        factor: Number of entries per row along that axis ("rows" only).
        zero: Whether padding is 0, as for cotangents ("rows" only). Otherwise padding repeats the last real row, because a
            derivative at rows of zeros could be NaN.
        leaf: Index of the leaf ("weights" only).
    """

    source: Literal["rows", "free", "weights"]
    axis: int = 0
    factor: int = 1
    zero: bool = False
    leaf: int = 0


class ResultTarget(NamedTuple):
    """Destination of a result, and the layout of its rows.

    Attributes:
        target: Kind of the result. In a pipeline, "rows" and "free", which does not depend on the rows, go to the graph
            server. "sums" over rows (gradients of weights) go to the parameter server.
        axis: Axis of the rows ("rows" only).
        factor: Number of entries per row along that axis ("rows" only).
    """

    target: Literal["rows", "sums", "free"]
    axis: int = 0
    factor: int = 1


def pad(rows: Any, axis: int, factor: int, count: int, size: int, *, zero: bool) -> Any:
    """Pad rows to the size of a stage's calls.

    Padding repeats the last real row, because a derivative could be NaN at rows of zeros.

    Args:
        rows: `count` rows along `axis`, or `size` if they are padded already.
        axis: Axis of the rows.
        factor: Number of entries per row along that axis.
        count: Number of real rows.
        size: Number of rows to return.
        zero: Whether the padding is 0, as for cotangents.

    Returns:
        `size` rows: `rows` unchanged if it needs no padding.
    """
    length = rows.shape[axis]
    full = size * factor
    if length == full and (not zero or count == size):
        return rows
    before = (slice(None),) * axis
    shape = (*rows.shape[:axis], full, *rows.shape[axis + 1 :])
    if is_abstract(rows):
        return abstract_array(shape, rows.dtype)
    padded = aligned.empty(shape, rows.dtype)
    real = count * factor
    padded[(*before, slice(0, real))] = np.asarray(rows)[(*before, slice(0, real))]
    if count < size:
        missing = (*before, slice(real, full))
        if zero or not count:
            padded[missing] = 0
        else:
            last = padded[(*before, slice(real - factor, real))]
            repeats = [1] * padded.ndim
            repeats[axis] = size - count
            padded[missing] = np.tile(last, repeats)
    return padded


def cut(rows: Any, axis: int, factor: int, first: int, last: int) -> np.ndarray:
    """Return a view of rows `first:last` along their axis."""
    found: np.ndarray = np.asarray(rows)[(*(slice(None),) * axis, slice(first * factor, last * factor))]
    return found


def chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last bound of each call over `count` rows, with up to `size` rows each.

    Without rows, one call still gives the results that have none.
    """
    for first in range(0, max(1, count), size):
        yield first, min(first + size, count)


def cut_operands(sources: Sequence[OperandSource], values: Sequence[Any], first: int, last: int) -> list[Any]:
    """Return a stage's operands with only rows `first:last`."""
    return [
        cut(value, source.axis, source.factor, first, last) if source.source == "rows" else value
        for value, source in zip(values, sources, strict=True)
    ]


def padded_operands(sources: Sequence[OperandSource], values: Sequence[Any], count: int, size: int) -> list[Any]:
    """Return a stage's operands with `count` real rows, or already `size`, padded to `size`."""
    return [
        pad(value, source.axis, source.factor, count, size, zero=source.zero) if source.source == "rows" else value
        for value, source in zip(values, sources, strict=True)
    ]


def call(
    function: Callable[..., Sequence[Any]],
    sources: Sequence[OperandSource],
    values: Sequence[Any],
    count: int,
    size: int,
) -> tuple[np.ndarray, ...]:
    """Call a stage; arguments as for `padded_operands`. Conversion to NumPy waits for the results."""
    return tuple(np.asarray(value) for value in function(*padded_operands(sources, values, count, size)))


def joined(
    targets: Sequence[ResultTarget],
    parts: Sequence[Sequence[Any]],
    counts: Sequence[int],
    add: Callable[[Sequence[Any]], Any] | None = None,
) -> list[Any]:
    """Join the results of a stage's calls on consecutive rows.

    Args:
        targets: Target of each result.
        parts: Results of each call.
        counts: Number of real rows in each call. Sums of a call without real rows come from padding and do not count.
        add: Adds the sums of several calls; None to add them in their own type.
    """
    results: list[Any] = []
    for place, target in enumerate(targets):
        pieces = [part[place] for part in parts]
        if target.target == "rows":
            rows = [
                cut(piece, target.axis, target.factor, 0, count) for piece, count in zip(pieces, counts, strict=True)
            ]
            results.append(rows[0] if len(rows) == 1 else _concatenated(rows, target.axis))
        elif target.target == "sums":
            real = [piece for piece, count in zip(pieces, counts, strict=True) if count]
            if len(real) > 1:
                results.append(np.asarray(sum(real[1:], start=real[0]) if add is None else add(real)))
            else:
                results.append(real[0] if real else np.zeros_like(pieces[0]))
        else:
            results.append(pieces[0])  # equal in every call
    return results


def _concatenated(rows: Sequence[np.ndarray], axis: int) -> np.ndarray:
    if is_abstract(rows[0]):
        shape = list(rows[0].shape)
        shape[axis] = sum(piece.shape[axis] for piece in rows)
        return abstract_array(shape, rows[0].dtype)
    return np.concatenate(rows, axis=axis)
