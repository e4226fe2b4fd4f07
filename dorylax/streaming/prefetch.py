"""Rows read ahead: while a unit is computed, threads read those after it, each into buffers that are used in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, final

import numpy as np

from dorylax.streaming.columns import Column
from dorylax.streaming.direct import anonymous

Key = TypeVar("Key", bound=Hashable)

BUFFERS = 4
"""Units that are in memory at a time: those that are computed, and those that are read."""
COMPUTED = 2
"""Units that are computed at a time."""


@final
class Prefetcher:
    """Reads columns, unit after unit.

    Args:
        threads: which read, each a unit: a disk gives a fifth more where it is asked for two things at a time.
        buffers: units in memory at a time, ≥ 3.
    """

    def __init__(self, threads: ThreadPoolExecutor, buffers: int = BUFFERS) -> None:
        self._threads, self._count = threads, buffers
        self._bytes = 0

    def over(self, units: Sequence[int], columns: Mapping[Key, Column]) -> Iterator[dict[Key, np.ndarray]]:
        """The rows of each unit in turn; they are valid until the one after the next is asked for.

        Buffers last as long as this: those of another pass are of other sizes.

        Args:
            units: their numbers, in order.
            columns: what is read.

        Raises:
            OSError: they cannot be read.
        """
        pending: deque[Future[dict[Any, np.ndarray]]] = deque()
        buffers: list[dict[int, np.ndarray]] = [{} for _ in range(self._count)]

        def submit(place: int) -> Future[dict[Any, np.ndarray]]:
            return self._submit(units[place], columns, buffers[place % self._count])

        try:
            for place in range(min(len(units), self._count - COMPUTED)):
                pending.append(submit(place))
            for place in range(len(units)):
                rows = pending.popleft().result()
                # The buffers of the unit before the last are free now.
                if (ahead := place + self._count - COMPUTED) < len(units):
                    pending.append(submit(ahead))
                yield rows
        finally:
            for future in pending:
                future.cancel()
            for future in pending:
                if not future.cancelled():
                    future.exception()  # waits: nothing may write into a buffer that is used again
            pending.clear()

    def _submit(
        self, unit: int, columns: Mapping[Key, Column], buffers: dict[int, np.ndarray]
    ) -> Future[dict[Any, np.ndarray]]:
        needs = {place: size for place, column in enumerate(columns.values()) if (size := column.room(unit))}
        for place, size in needs.items():
            if place not in buffers or len(buffers[place]) < size:
                buffers[place] = anonymous(size)
        if not needs:
            found: Future[dict[Any, np.ndarray]] = Future()
            found.set_result({key: column.read(unit, None) for key, column in columns.items()})
            return found
        self._bytes += sum(needs.values())
        return self._threads.submit(_read, unit, dict(columns), dict(buffers))

    def take(self) -> int:
        """Bytes that were read since this was asked last."""
        found, self._bytes = self._bytes, 0
        return found


def _read(unit: int, columns: Mapping[Any, Column], buffers: Mapping[int, np.ndarray]) -> dict[Any, np.ndarray]:
    return {key: column.read(unit, buffers.get(place)) for place, (key, column) in enumerate(columns.items())}
