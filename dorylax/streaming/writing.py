"""Rows written behind: while the next unit is computed, one thread writes those before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import final

import numpy as np

from dorylax.streaming.columns import WrittenColumn

PENDING = 2
"""Pieces that wait to be written, at most."""


@final
class Writer:
    """Writes pieces, in order.

    Args:
        threads: of one thread, which writes.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._pending: deque[Future[None]] = deque()
        self._bytes = 0

    def put(self, column: WrittenColumn, unit: int, rows: np.ndarray) -> None:
        """Has a unit's rows written, which nobody changes from now on.

        Raises:
            OSError: the disk is full, for these rows or earlier ones.
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
        """In the end of this everything is written.

        Raises:
            OSError: the disk is full.
        """
        try:
            yield
            while self._pending:
                self._pending.popleft().result()
        finally:
            for future in self._pending:  # what failed first is raised, and nothing writes any more
                if not future.cancel():
                    future.exception()
            self._pending.clear()

    def take(self) -> int:
        """Bytes that were written since this was asked last."""
        found, self._bytes = self._bytes, 0
        return found
