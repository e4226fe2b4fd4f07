"""What graph servers send each other, and what they report of their intervals' progress."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class RowsMessage(NamedTuple):
    """Boundary rows of one interval, for a server that has them as ghosts.

    Attributes:
        publication: the number of the value in the plan: which layer's, and in which direction.
        interval: its number in the whole graph.
        epoch: of the rows.
        rows: `[M, …]`, all ghosts of the interval there, in order.
        exact: whether they must not be smoothed, because the sender's stability gate is closed.
    """

    publication: int
    interval: int
    epoch: int
    rows: np.ndarray
    exact: bool = False


class SumsMessage(NamedTuple):
    """Sums over in-edges per source, for the owner of the sources.

    Attributes:
        step: the number of the task that sums.
        places: int64 `[M]`, which of the rows that this peer sends.
        epochs: int64 `[M]`, of the oldest contribution to each.
        rows: `[M, …]`.
        exact: as of `RowsMessage`.
    """

    step: int
    places: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray
    exact: bool = False


class PartsMessage(NamedTuple):
    """What intervals of a server give to sums over all rows.

    Attributes:
        step: the number of the task that completes the sums.
        intervals: int64 `[M]`, their numbers in the whole graph.
        epoch: of the parts.
        rows: of each sum, the parts of these intervals, `[M, …]`.
    """

    step: int
    intervals: np.ndarray
    epoch: int
    rows: tuple[np.ndarray, ...]


HEADER_BYTES = 64
"""Of a message besides its rows: which value, interval and epoch."""


class Started(NamedTuple):
    """An interval has started an epoch."""

    interval: int
    epoch: int


class Walked(NamedTuple):
    """An interval has taken all steps of an epoch, and all that it sent has been acknowledged."""

    interval: int
    epoch: int
