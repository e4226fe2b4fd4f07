"""Rows of operands and results: padded to the fixed number that a stage takes, and cut back to the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dorylax import aligned
from dorylax.serverless.task import TensorTask


def pad(rows: Any, axis: int, factor: int, count: int, size: int, *, zero: bool) -> Any:
    """Rows of one interval, padded to the size of a stage's calls.

    Padding repeats the last real row: a derivative could be NaN at rows of zeros.

    Args:
        rows: `count` rows along `axis`, or `size` if they are padded already.
        axis: along which rows lie.
        factor: entries of that axis for each row.
        count: how many rows are real.
        size: how many there must be.
        zero: the padding must be 0, as cotangents of padding are.

    Returns:
        `size` rows; `rows` itself if there is nothing to do.
    """
    length = rows.shape[axis]
    full = size * factor
    if length == full and (not zero or count == size):
        return rows
    before = (slice(None),) * axis
    padded = aligned.empty((*rows.shape[:axis], full, *rows.shape[axis + 1 :]), rows.dtype)
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
    """Rows `first:last` along their axis, a view."""
    found: np.ndarray = np.asarray(rows)[(*(slice(None),) * axis, slice(first * factor, last * factor))]
    return found


def padded_operands(task: TensorTask) -> list[Any]:
    """The operands of a task as its stage takes them."""
    return [
        pad(value, source.axis, source.factor, task.count, task.size, zero=source.zero)
        if source.source == "rows"
        else value
        for value, source in zip(task.operands, task.sources, strict=True)
    ]
