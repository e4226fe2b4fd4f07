"""Arrays for all vertices, used again by the next value and the next epoch.

The system clears every page that it gives out, which took a fifth of an epoch where such arrays came and went.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from dorylax.streaming.direct import anonymous


@final
class SpareArrays:
    """What was let go of and is not needed now."""

    def __init__(self) -> None:
        self._spare: list[np.ndarray] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array with whatever is in it.

        It is a spare one, where one is of that size; otherwise a new one, and those that are spare go: there are never more
        than are needed at a time.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        number = next((k for k, array in enumerate(self._spare) if array.nbytes == size), None)
        if number is None:
            self.clear()
        memory = anonymous(size) if number is None else self._spare.pop(number).reshape(-1)
        found: np.ndarray = memory.view(dtype).reshape(shape)
        return found

    def put(self, array: np.ndarray) -> None:
        """Takes one back, which nobody reads any more."""
        self._spare.append(array)

    def keep(self, size: int) -> None:
        """Lets go of the last ones, until the others have so many bytes at most."""
        while self._spare and sum(array.nbytes for array in self._spare) > size:
            self._spare.pop()

    def clear(self) -> None:
        """Lets go of all."""
        self._spare.clear()
