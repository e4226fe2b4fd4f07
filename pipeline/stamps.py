"""Which epoch the rows of a buffer are of, block by block, and who waits for newer ones."""

from __future__ import annotations

import asyncio
from typing import final

import numpy as np

NEVER = -2
"""The stamp of rows that were never written; -1 is that of what is computed once, before epoch 0."""


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
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def oldest(self) -> int | None:
        """The oldest epoch of any block; None where there are no blocks."""
        return int(self.epochs.min()) if self.epochs.size else None

    async def wait(self, epoch: int) -> None:
        """Until every block is of this epoch or a later one."""
        if self._reached(epoch):
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
        if not self._waiting:
            return
        still = []
        for epoch, future in self._waiting:
            if self._reached(epoch):
                if not future.done():
                    future.set_result(None)
            else:
                still.append((epoch, future))
        self._waiting = still

    def _reached(self, epoch: int) -> bool:
        oldest = self.oldest
        return oldest is None or oldest >= epoch
