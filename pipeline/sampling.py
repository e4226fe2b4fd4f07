"""Selects the traced epochs of a run, so that a trace has a limited size."""

from __future__ import annotations

from typing import final

LIMIT = 128 * 2**20
"""Largest size of a sampled trace in bytes."""

_LEAST = 2  # epochs per stretch: the second shows the end of the first


@final
class Sampling:
    """Traces every epoch at first, then stretches of epochs with growing gaps; each gap is as long as the run before it.

    Decisions depend on `wrote` alone, so a resumed run decides as if it had never stopped.

    Args:
        limit: Largest size of the trace in bytes. A quarter is for the first epochs, which are all traced. Every later
            stretch has at least two epochs, and at most 1/64 of the limit.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._first = 0  # first epoch of the current or next stretch
        self._begin = 0  # bytes before it
        self._size = 0
        self._largest = 0  # bytes of one epoch

    def wants(self, epoch: int) -> bool:
        """Return whether to trace an epoch: it is in a stretch, and the largest epoch so far would fit."""
        return epoch >= self._first and self._size + self._largest <= self._limit

    def takes(self, size: int) -> bool:
        """Return whether the trace may grow to this size in bytes; a refusal is final."""
        if size > self._limit:
            self._largest = max(self._largest, size - self._size)
        return size <= self._limit

    def wrote(self, epochs: int, size: int) -> None:
        """Record the size of the trace after all epochs before this one."""
        self._largest = max(self._largest, size - self._size)
        self._size = size
        share = self._limit // (64 if self._first else 4)
        if epochs - self._first >= _LEAST and size - self._begin >= share:
            self._first, self._begin = 2 * epochs, size
