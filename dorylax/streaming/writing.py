"""Writes rows behind: during the computation of a unit, one thread writes earlier units."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import final

import numpy as np

from dorylax.streaming.columns import WrittenColumn

PENDING = 2
"""Maximum number of pieces waiting to be written."""


@final
class Writer:
    """Writes pieces in order.

    Args:
        threads: Pool of one writing thread.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._pending: deque[Future[None]] = deque()
        self._bytes = 0

    def put(self, column: WrittenColumn, unit: int, rows: np.ndarray) -> None:
        """Submit a unit's rows, which must not change from now on, for writing.

        Raises:
            OSError: The disk is full, for these rows or earlier ones.
        """
        if not column.on_disk(unit):
            column.write(unit, rows)
            return
        self._bytes += rows.nbytes
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

    def take(self) -> int:
        """Return the bytes written since the last call."""
        found, self._bytes = self._bytes, 0
        return found
