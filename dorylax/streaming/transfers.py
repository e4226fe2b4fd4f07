"""Reads rows ahead and writes them behind: while a unit is computed, threads read later units and write earlier ones.

Later units are read into buffers that are used in turn.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, final

import numpy as np

from dorylax.streaming.columns import Column, WrittenColumn
from dorylax.streaming.direct import anonymous

Key = TypeVar("Key", bound=Hashable)

BUFFERS = 4
"""Units in memory at a time: those being computed, and those being read."""
COMPUTED = 2
"""Units being computed at a time."""
PENDING = 2
"""Maximum number of pieces waiting to be written."""


@final
@dataclasses.dataclass
class Traffic:
    """Bytes read and written so far, and number of edges traversed."""

    read: int = 0
    written: int = 0
    edges: int = 0


@final
class Prefetcher:
    """Reads columns, unit after unit.

    Args:
        threads: Pool of reading threads, one unit each. Two concurrent reads give a fifth more disk throughput than one.
        traffic: Counts the bytes read.
        buffers: Units in memory at a time, ≥ 3.
    """

    def __init__(self, threads: ThreadPoolExecutor, traffic: Traffic, buffers: int = BUFFERS) -> None:
        self._threads, self._traffic, self._count = threads, traffic, buffers

    def over(self, units: Sequence[int], columns: Mapping[Key, Column]) -> Iterator[dict[Key, np.ndarray]]:
        """Yield the rows of each unit in turn; they stay valid until the second next is requested.

        Buffers last for one pass, since the next pass has other sizes.

        Args:
            units: Numbers of the units, in order.
            columns: Columns to read.

        Raises:
            OSError: The rows cannot be read.
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
                # The buffers of the second last unit are free now.
                if (ahead := place + self._count - COMPUTED) < len(units):
                    pending.append(submit(ahead))
                yield rows
        finally:
            for future in pending:
                future.cancel()
            for future in pending:
                if not future.cancelled():
                    future.exception()  # waits, so that no thread writes into a reused buffer
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
        self._traffic.read += sum(needs.values())
        return self._threads.submit(_read, unit, dict(columns), dict(buffers))


@final
class Writer:
    """Writes pieces in order.

    Args:
        threads: Pool of one writing thread.
        traffic: Counts the bytes written.
    """

    def __init__(self, threads: ThreadPoolExecutor, traffic: Traffic) -> None:
        self._threads, self._traffic = threads, traffic
        self._pending: deque[Future[None]] = deque()

    def put(self, column: WrittenColumn, unit: int, rows: np.ndarray) -> None:
        """Submit a unit's rows, which must not change from now on, for writing.

        Raises:
            OSError: The disk is full, for these rows or earlier ones.
        """
        if not column.on_disk(unit):
            column.write(unit, rows)
            return
        self._traffic.written += rows.nbytes
        self._pending.append(self._threads.submit(column.write, unit, rows))
        while len(self._pending) > PENDING:
            self._pending.popleft().result()

    @contextmanager
    def finished(self) -> Iterator[None]:
        """Context at whose end all rows are written.

        Raises:
            OSError: The disk is full.
        """
        try:
            yield
            while self._pending:
                self._pending.popleft().result()
        finally:
            for future in self._pending:  # the first error is raised, and the thread stops writing
                if not future.cancel():
                    future.exception()
            self._pending.clear()


def _read(unit: int, columns: Mapping[Any, Column], buffers: Mapping[int, np.ndarray]) -> dict[Any, np.ndarray]:
    return {key: column.read(unit, buffers.get(place)) for place, (key, column) in enumerate(columns.items())}
