"""Which epoch the rows of a buffer are of, block by block, and who waits for newer ones."""

from __future__ import annotations

import asyncio
from typing import final

import numpy as np

NEVER = -2
"""The stamp of rows that were never written; -1 is that of what is computed once, before epoch 0."""

_FOREVER = np.iinfo(np.int64).max  # how new rows are where there are none


@final
class Stamps:
    """Epochs of blocks of rows.

    Args:
        count: number of blocks.

    Attributes:
        epochs: int64 `[count]`.
    """

    def __init__(self, count: int) -> None:
        self.epochs = np.full(count, NEVER, np.int64)
        self._oldest = NEVER  # as of the last `changed`
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.changed()

    async def wait(self, epoch: int) -> None:
        """Until every block is of this epoch or a later one."""
        if self._oldest >= epoch:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (epoch, future)
        self._waiting.append(entry)
        try:
            await future
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def changed(self) -> None:
        """Wakes who waited for what is there now; to be called on the event loop after epochs were written."""
        oldest = int(self.epochs.min(initial=_FOREVER))
        if oldest == self._oldest:
            return
        self._oldest = oldest
        still = []
        for epoch, future in self._waiting:
            if oldest >= epoch:
                if not future.done():
                    future.set_result(None)
            else:
                still.append((epoch, future))
        self._waiting = still
