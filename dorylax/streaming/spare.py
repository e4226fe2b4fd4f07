"""Reuse of memory: arrays for all vertices that the next value and the next epoch reuse, and settings of the allocator.

The system clears every page that it hands out; without reuse, this took a fifth of an epoch.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
from typing import Any, final

import numpy as np

from dorylax.streaming.direct import anonymous


@final
class SpareArrays:
    """Arrays that are free for reuse."""

    def __init__(self) -> None:
        self._spare: list[np.ndarray] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialised array.

        Returns a spare array of the same size, if there is one. Otherwise drops all spare arrays and allocates a new one, so
        that memory never exceeds the current need.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        number = next((k for k, array in enumerate(self._spare) if array.nbytes == size), None)
        if number is None:
            self.clear()
        memory = anonymous(size) if number is None else self._spare.pop(number).reshape(-1)
        found: np.ndarray = memory.view(dtype).reshape(shape)
        return found

    def put(self, array: np.ndarray) -> None:
        """Add an array that is no longer read."""
        self._spare.append(array)

    def keep(self, size: int) -> None:
        """Drop the arrays added last until the others have at most so many bytes."""
        while self._spare and sum(array.nbytes for array in self._spare) > size:
            self._spare.pop()

    def clear(self) -> None:
        """Drop all arrays."""
        self._spare.clear()


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 27


def keep_freed_memory() -> None:
    """Let the allocator reuse up to 128 MiB of freed memory, since the system clears every page that it hands out.

    Page faults were a quarter of an epoch's processor time. Without glibc, this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            library.mallopt(option, _KEPT)


def give_back_freed_memory() -> None:
    """Return all freed memory to the system, since the next sweep allocates other sizes in addition.

    JAX holds arrays that it has read until its next call or Python's garbage collection. Collecting the youngest generation
    suffices, and is fast in a process with many objects.
    """
    gc.collect(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
