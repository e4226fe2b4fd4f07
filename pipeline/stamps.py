"""Which epoch the rows of a buffer are of, block by block, and who waits for newer ones."""

from __future__ import annotations

import asyncio
import heapq
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

    def missing(self, epochs: np.ndarray, epoch: int) -> int:
        """How many more blocks have to become new at least, the weightiest first; 0: enough are.

        Args:
            epochs: int64 `[count]`, of all blocks.
            epoch: of which, or later, new ones are.
        """
        old = epochs[self.blocks] < epoch
        lacking = self.needed - int(self.weights[~old].sum())
        if lacking <= 0:
            return 0
        weightiest = np.sort(self.weights[old])[::-1]
        return 1 + int(np.searchsorted(np.cumsum(weightiest), lacking))


class _Wait(NamedTuple):
    """Who waits: the number says in which order they came."""

    number: int
    epoch: int
    quorum: Quorum | None


@final
class Stamps:
    """Epochs of blocks of rows.

    A quorum is looked at again only once so many blocks were written that it may be met: with thousands of blocks, and
    hundreds who wait, looking each time is most of what a simulation takes.

    Args:
        count: number of blocks.

    Attributes:
        epochs: int64 `[count]`.
    """

    def __init__(self, count: int) -> None:
        self.epochs = np.full(count, NEVER, np.int64)
        self._oldest = NEVER  # as of the last `changed`, as the next
        self._at_oldest = 0  # how many blocks are of it; 0: not counted
        self._written = 0  # blocks, ever
        self._came = 0
        self._waiting: dict[asyncio.Future[None], _Wait] = {}
        # Of quorums: how many blocks have to be written until one is looked at, and whose it is. Some may wait no more.
        self._looks: list[tuple[int, int, asyncio.Future[None]]] = []
        self.changed(0)

    async def wait(self, epoch: int, quorum: Quorum | None = None) -> None:
        """Until every block, or a quorum of them, is of this epoch or a later one."""
        if self._oldest >= epoch:
            return
        more = 0 if quorum is None else quorum.missing(self.epochs, epoch)
        if quorum is not None and not more:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came += 1
        self._waiting[future] = _Wait(self._came, epoch, quorum)
        if quorum is not None:
            heapq.heappush(self._looks, (self._written + more, self._came, future))
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def advance(self, block: int, epoch: int) -> None:
        """Writes the epoch of one block, which has become later, and wakes who waited for it."""
        was = self.epochs[block]
        self.epochs[block] = epoch
        self._written += 1
        before = self._oldest
        if was == before:
            if not self._at_oldest:
                self._at_oldest = 1 + int(np.count_nonzero(self.epochs == before))
            self._at_oldest -= 1
            if not self._at_oldest:
                self._look()
        if self._oldest > before or (self._looks and self._looks[0][0] <= self._written):
            self._wake(before)

    def changed(self, blocks: int = 1) -> None:
        """Wakes who waited for what is there now; to be called on the event loop after epochs were written.

        Args:
            blocks: of how many, at most.
        """
        self._written += blocks
        before = self._oldest
        self._look()
        self._wake(before)

    def _look(self) -> None:
        self._oldest, self._at_oldest = int(self.epochs.min(initial=_FOREVER)), 0

    def _wake(self, before: int) -> None:
        ready = self._met_quorums() if self._looks and self._looks[0][0] <= self._written else []
        if self._oldest > before:  # with many blocks, hardly ever
            ready += [
                (one.number, future)
                for future, one in self._waiting.items()
                if one.quorum is None and self._oldest >= one.epoch
            ]
        for _, future in sorted(ready) if ready else ():
            del self._waiting[future]
            if not future.done():
                future.set_result(None)

    def _met_quorums(self) -> list[tuple[int, asyncio.Future[None]]]:
        met, looks = [], self._looks
        while looks and looks[0][0] <= self._written:
            _, number, future = heapq.heappop(looks)
            wait = self._waiting.get(future)
            if wait is None:
                continue
            assert wait.quorum is not None
            if more := wait.quorum.missing(self.epochs, wait.epoch):
                heapq.heappush(looks, (self._written + more, number, future))
            else:
                met.append((number, future))
        return met
