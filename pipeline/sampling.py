"""Which epochs of a run are traced, so that a trace of any run has at most so many bytes."""

from __future__ import annotations

from typing import final

LIMIT = 128 * 2**20
"""Bytes of a sampled trace at most."""

_LEAST = 2  # epochs in a stretch: the second shows where the first one ended


@final
class Sampling:
    """Every epoch at first, then stretches of epochs with gaps between them, each as long as all that was before it.

    A function of `wrote` alone, so a run that goes on with a trace decides as if it had never stopped, once it has been
    told of what is there.

    Args:
        limit: bytes of the trace at most. A quarter of them are for the first epochs, all of which are traced; every later
            stretch has at least two epochs, and ends at 1/64.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._first = 0  # epoch of the stretch that is being traced, or of the next
        self._begin = 0  # bytes before it
        self._size = 0
        self._largest = 0  # bytes of one epoch

    def wants(self, epoch: int) -> bool:
        """Whether tasks of this epoch are traced: it is in a stretch, and there is room for one like the largest so far."""
        return epoch >= self._first and self._size + self._largest <= self._limit

    def takes(self, size: int) -> bool:
        """Whether the trace may grow to so many bytes; if not, it grows no more."""
        if size > self._limit:
            self._largest = max(self._largest, size - self._size)
        return size <= self._limit

    def wrote(self, epochs: int, size: int) -> None:
        """Records that the trace has what was traced of epochs before this one, and so many bytes."""
        self._largest = max(self._largest, size - self._size)
        self._size = size
        share = self._limit // (64 if self._first else 4)
        if epochs - self._first >= _LEAST and size - self._begin >= share:
            self._first, self._begin = 2 * epochs, size
