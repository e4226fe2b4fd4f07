"""Which epoch the rows of a buffer are of, block by block, and who waits for newer ones."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, final

import numpy as np

NEVER = -2
"""The stamp of rows that were never written; -1 is that of what is computed once, before epoch 0."""

_FOREVER = np.iinfo(np.int64).max  # how new rows are where there are none


class Quorum(NamedTuple):
    """How much of what is read has to be new.

    Attributes:
        blocks: int64 `[M]`, the blocks that count.
        weights: int64 `[M]`, how much each of them counts.
        needed: how much the new ones have to count together, ≤ the sum of `weights`.
    """

    blocks: np.ndarray
    weights: np.ndarray
    needed: int

    def met(self, epochs: np.ndarray, epoch: int) -> bool:
        """Whether enough blocks, of these epochs, are of this epoch or a later one."""
        return int(self.weights[epochs[self.blocks] >= epoch].sum()) >= self.needed


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
        self._waiting: dict[asyncio.Future[None], tuple[int, Quorum | None]] = {}
        self._quorums = 0  # of those who wait
        self.changed()

    async def wait(self, epoch: int, quorum: Quorum | None = None) -> None:
        """Until every block, or a quorum of them, is of this epoch or a later one."""
        if self._met(epoch, quorum):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = (epoch, quorum)
        self._quorums += quorum is not None
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            self._quorums -= quorum is not None

    def changed(self) -> None:
        """Wakes who waited for what is there now; to be called on the event loop after epochs were written."""
        before, self._oldest = self._oldest, int(self.epochs.min(initial=_FOREVER))
        if not self._waiting or (self._oldest == before and not self._quorums):
            return  # with many blocks, nearly always
        for future in [future for future, entry in self._waiting.items() if self._met(*entry)]:
            del self._waiting[future]
            if not future.done():
                future.set_result(None)

    def _met(self, epoch: int, quorum: Quorum | None) -> bool:
        if self._oldest >= epoch:
            return True
        return quorum is not None and quorum.met(self.epochs, epoch)
