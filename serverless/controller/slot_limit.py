"""Adjustable limit of concurrent calls, with slots granted in FIFO order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import final


@final
class SlotLimit:
    """Resizable semaphore for one asyncio loop, with a main queue and a spare queue.

    The spare queue, for optional work, receives slots only while the main queue is empty. A cap can temporarily withhold
    slots without changing their number.

    Args:
        slots: Number of slots, ≥ 1.

    Attributes:
        taken: Number of slots in use. It may temporarily exceed `slots` after `set` or `cap` lowers the limit.

    Raises:
        ValueError: If `slots` < 1.
    """

    def __init__(self, slots: int) -> None:
        _check(slots)
        self.slots, self.taken = slots, 0
        self._usable = slots
        self._cap: int | None = None
        self._queue: deque[asyncio.Future[None]] = deque()
        self._spare_queue: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Take a slot if one is free, and return whether it succeeded."""
        # Freed slots go to waiting callers directly, so a free slot implies empty queues.
        free = self.taken < self._usable
        self.taken += free
        return free

    async def acquire(self, *, spare: bool = False) -> None:
        """Wait for a slot and take it. Cancelling the call leaves the queue.

        Args:
            spare: Whether to wait in the spare queue.
        """
        if self.try_acquire():
            return
        queue = self._spare_queue if spare else self._queue
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a slot was granted just before the cancellation
                self.release()
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self) -> None:
        """Release a slot.

        Raises:
            RuntimeError: If no slot is taken.
        """
        if not self.taken:
            raise RuntimeError("a slot was given back, but none is taken: give each back once")
        self.taken -= 1
        self._hand_out()

    def set(self, slots: int) -> None:
        """Change the number of slots. A lower number takes effect as slots are released.

        Args:
            slots: New number of slots, ≥ 1.

        Raises:
            ValueError: If `slots` < 1.
        """
        _check(slots)
        self.slots = slots
        self._change()

    def cap(self, slots: int | None) -> None:
        """Cap the usable slots without changing their number.

        Args:
            slots: Maximum number of usable slots, ≥ 0, or None to remove the cap.

        Raises:
            ValueError: If `slots` < 0.
        """
        if slots is not None and slots < 0:
            raise ValueError(f"a limit is capped at ≥ 0 slots or None, got {slots}")
        self._cap = slots
        self._change()

    def _change(self) -> None:
        self._usable = self.slots if self._cap is None else min(self.slots, self._cap)
        self._hand_out()

    def _hand_out(self) -> None:
        for queue in (self._queue, self._spare_queue):
            while queue and self.taken < self._usable:
                turn = queue.popleft()
                if not turn.cancelled():  # skip callers that are leaving the queue
                    self.taken += 1
                    turn.set_result(None)


def _check(slots: int) -> None:
    if slots < 1:
        raise ValueError(f"a limit needs at least 1 slot, got {slots}")
