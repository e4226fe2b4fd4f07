"""Synchronization of a buffer: epoch stamps of its blocks, waits for newer rows, and a lock around its writes."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, final

import numpy as np

NEVER = -2
"""Stamp of rows that were never written. Rows from before training have stamp -1."""

_FOREVER = np.iinfo(np.int64).max  # stamp of a buffer without blocks


class Quorum(NamedTuple):
    """Amount of the read rows that must be new.

    Attributes:
        blocks: int64 `[M]`, the counted blocks.
        weights: int64 `[M]`, weight of each of these blocks.
        needed: Minimum total weight of the new blocks, ≤ the sum of `weights`.
    """

    blocks: np.ndarray
    weights: np.ndarray
    needed: int

    def missing(self, epochs: np.ndarray, epoch: int) -> int:
        """Return the minimum number of further blocks that must become new (heaviest first); 0 if the quorum is met.

        Args:
            epochs: int64 `[count]`, epochs of all blocks.
            epoch: First epoch of new blocks.
        """
        old = epochs[self.blocks] < epoch
        lacking = self.needed - int(self.weights[~old].sum())
        if lacking <= 0:
            return 0
        weightiest = np.sort(self.weights[old])[::-1]
        return 1 + int(np.searchsorted(np.cumsum(weightiest), lacking))


class Reads(NamedTuple):
    """Numbers of distinct rows that an interval has read through edges, by epoch.

    Attributes:
        oldest: Oldest epoch of these rows.
        rows: Number of rows of the oldest epoch, of the next one, and so on; empty if no rows were read.
    """

    oldest: int
    rows: tuple[int, ...]


def reads(counts: np.ndarray, epochs: np.ndarray) -> Reads:
    """Summarize a read of `counts[b]` rows of epoch `epochs[b]` for every block b."""
    some = counts > 0
    if not some.any():
        return Reads(0, ())
    oldest = int(epochs[some].min())
    # In float64, which is exact up to 2⁵³.
    totals = np.bincount(epochs[some] - oldest, weights=counts[some])
    return Reads(oldest, tuple(int(total) for total in totals))


class _Wait(NamedTuple):
    """A waiting reader, numbered in order of arrival."""

    number: int
    epoch: int
    quorum: Quorum | None


@final
class Stamps:
    """Epochs of blocks of rows.

    A quorum is checked again only after enough writes that it may be met. With thousands of blocks and hundreds of readers,
    a check after every write would dominate the time of a simulation.

    Args:
        count: Number of blocks.

    Attributes:
        epochs: Epoch of each block, int64 `[count]`.
    """

    def __init__(self, count: int) -> None:
        self.epochs = np.full(count, NEVER, np.int64)
        self._oldest = NEVER  # oldest epoch at the last `changed`
        self._at_oldest = 0  # number of blocks of this epoch; 0 if not counted
        self._written = 0  # total number of written blocks
        self._came = 0
        self._waiting: dict[asyncio.Future[None], _Wait] = {}
        # Quorums: total of written blocks at which to check one, and its reader, which may have stopped waiting.
        self._looks: list[tuple[int, int, asyncio.Future[None]]] = []
        self.changed(0)

    async def wait(self, epoch: int, quorum: Quorum | None = None) -> None:
        """Wait until every block, or a quorum of blocks, is from this epoch or a later one."""
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
        """Increase the epoch of one block, and wake its waiting readers."""
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
        """Wake readers whose condition is met; call on the event loop after writing epochs.

        Args:
            blocks: Maximum number of blocks written.
        """
        self._written += blocks
        before = self._oldest
        self._look()
        self._wake(before)

    def _look(self) -> None:
        self._oldest, self._at_oldest = int(self.epochs.min(initial=_FOREVER)), 0

    def _wake(self, before: int) -> None:
        ready = self._met_quorums() if self._looks and self._looks[0][0] <= self._written else []
        if self._oldest > before:  # rare with many blocks
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


@final
class Guard:
    """Readers-writer lock of one buffer, for reading threads and a writer that never blocks.

    Readers never see a half-written row. Gathers read a buffer during their whole computation, on separate threads and
    without the GIL, so rows that arrive meanwhile must wait. Without readers, a write runs immediately. Otherwise the last
    reader runs it on exit, and new readers wait for it, so that writes never starve.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting: list[tuple[Callable[[], None], Future[None]]] = []

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Block writes inside the context. Not reentrant."""
        with self._changed:
            while self._waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if self._readers == 0:
                    self._write_all()

    def write(self, action: Callable[[], None]) -> Future[None] | None:
        """Run `action` immediately, or when the last reader exits.

        Returns:
            None if the action has run. Otherwise a future that completes after the action and holds its exception.

        Raises:
            BaseException: The action ran immediately and raised this exception.
        """
        with self._changed:
            if self._readers == 0:
                action()
                return None
            future: Future[None] = Future()
            future.set_running_or_notify_cancel()  # the write happens even if its caller stops waiting
            self._waiting.append((action, future))
        return future

    def _write_all(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for action, future in waiting:
            try:
                action()
            except BaseException as error:  # passed to the caller of `write`
                future.set_exception(error)
            else:
                future.set_result(None)
        self._changed.notify_all()
