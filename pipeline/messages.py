"""Messages between graph servers, and their reports on the progress of intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class RowsMessage(NamedTuple):
    """Boundary rows of one interval, for a server that has them as ghosts.

    Attributes:
        publication: Number of the publication in the plan, which determines layer and direction.
        interval: Number of the interval in the whole graph.
        epoch: Epoch of the rows.
        rows: All ghosts of the interval on the receiving server, in order, `[M, …]`.
        exact: Whether the rows must not be smoothed, because the sender's stability gate is closed.
    """

    publication: int
    interval: int
    epoch: int
    rows: np.ndarray
    exact: bool = False


class SumsMessage(NamedTuple):
    """Sums over in-edges per source, for the owner of the sources.

    Attributes:
        step: Index of the task that sums.
        places: int64 `[M]`, positions among the rows that this peer sends.
        epochs: int64 `[M]`, epoch of the oldest contribution to each row.
        rows: Sums, `[M, …]`.
        exact: Whether the sums must not be smoothed, see `RowsMessage`.
    """

    step: int
    places: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray
    exact: bool = False


class PartsMessage(NamedTuple):
    """Contributions of a server's intervals to sums over all rows.

    Attributes:
        step: Index of the task that completes the sums.
        intervals: int64 `[M]`, numbers of the intervals in the whole graph.
        epoch: Epoch of the parts.
        rows: Parts of these intervals for each sum, `[M, …]`.
    """

    step: int
    intervals: np.ndarray
    epoch: int
    rows: tuple[np.ndarray, ...]


HEADER_BYTES = 64
"""Bytes of a message in addition to its rows: value, interval and epoch."""


class Started(NamedTuple):
    """Report that an interval has started an epoch."""

    interval: int
    epoch: int


class Completed(NamedTuple):
    """Report that an interval has run all steps of an epoch, and that all its messages are acknowledged."""

    interval: int
    epoch: int
