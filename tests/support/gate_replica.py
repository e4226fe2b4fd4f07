"""The stability gate once more, from the whole history of weights and gradients instead of step by step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Decision(NamedTuple):
    """After an update: the curvature along the path, NaN where it is unknown, and whether the gate is open."""

    curvature: float
    is_open: bool


def decisions(
    weights: Sequence[np.ndarray],
    gradients: Sequence[np.ndarray],
    *,
    sizes: Sequence[int] | None = None,
    patience: int = 8,
) -> list[Decision]:
    """Replays the gate.

    Args:
        weights: `[n + 1, P]`, before the first update and after each.
        gradients: `[n, P]`, of each update.
        sizes: Number of parameters of each array, in order; None for one array.
        patience: Calm updates that open the gate at first.
    """
    found, calm, needed, is_open = list[Decision](), 0, patience, False
    ends = np.cumsum([0, *(sizes or [len(weights[0])])])
    arrays = [slice(*pair) for pair in itertools.pairwise(ends)]
    for newest in range(len(gradients)):
        curvature = _curvature(weights, gradients, newest, slice(None), 5)
        single = [abs(_curvature(weights, gradients, newest, array, 10)) for array in arrays]
        largest = max((one for one in single if not np.isnan(one)), default=0.0)
        calm = calm + 1 if abs(curvature) < 0.1 and largest < 1 else 0
        if is_open and not (abs(curvature) <= 0.2 and largest <= 2):
            is_open, needed = False, 2 * needed
        elif not is_open:
            is_open = calm >= needed
        found.append(Decision(curvature, is_open))
    return found


def _curvature(
    weights: Sequence[np.ndarray], gradients: Sequence[np.ndarray], newest: int, array: slice, window: int
) -> float:
    """The quotient of an array over a window; over a shorter one at first if the window has more than five updates."""
    above = below = 0.0
    for k in range(newest - window + 1, newest + 1):
        if k < 2 and window == 5:
            return np.nan
        if k < 2:
            continue
        move = (weights[k - 1] - weights[k - 2])[array]
        shares = np.array([0.9 ** (k - 1 - j) for j in range(k)])
        mean = sum(share * gradient for share, gradient in zip(shares, gradients, strict=False)) / shares.sum()
        scale = -float(move @ mean[array])
        above += np.sign(scale) * float(move @ (gradients[k] - gradients[k - 1])[array])
        below += abs(scale)
    return above / below if below else np.nan
