"""How many calls run at a time: slots, handed out first come, first served, whose number may change."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import final


@final
class SlotLimit:
    """Slots on one asyncio loop.

    There are two queues. The second, for optional work, gets a slot only while the first is empty. A cap may withhold some
    of the slots for a while, independently of their number.

    Args:
        slots: how many there are, ≥ 1.

    Attributes:
        slots: how many there are now.
        taken: how many are in use; more than `slots` for a while after `set` or `cap` has lowered them.

    Raises:
        ValueError: fewer than 1 slot.
    """

    def __init__(self, slots: int) -> None:
        _check(slots)
        self.slots, self.taken = slots, 0
        self._usable = slots
        self._cap: int | None = None
        self._queue: deque[asyncio.Future[None]] = deque()
        self._spare_queue: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Takes a slot if one is free; says whether it did."""
        # Whoever waits has been handed what became free: where a slot is free, nobody can be overtaken.
        free = self.taken < self._usable
        self.taken += free
        return free

    async def acquire(self, *, spare: bool = False) -> None:
        """Takes a slot as soon as it is this caller's turn. Cancelling gives up the place in the queue.

        Args:
            spare: wait in the second queue.
        """
        if self.try_acquire():
            return
        queue = self._spare_queue if spare else self._queue
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed a slot at the moment it was cancelled
                self.release()
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self) -> None:
        """Gives a slot back.

        Raises:
            RuntimeError: none is taken.
        """
        if not self.taken:
            raise RuntimeError("a slot was given back, but none is taken: give each back once")
        self.taken -= 1
        self._hand_out()

    def set(self, slots: int) -> None:
        """Changes the number of slots. None is taken away: if too many are in use, those given back are not handed out.

        Args:
            slots: how many from now on, ≥ 1.

        Raises:
            ValueError: fewer than 1 slot.
        """
        _check(slots)
        self.slots = slots
        self._change()

    def cap(self, slots: int | None) -> None:
        """Hands out no more slots than this, whatever their number.

        Args:
            slots: how many may be taken from now on, ≥ 0; None: all.

        Raises:
            ValueError: a negative number.
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
                if not turn.cancelled():  # else its task is about to leave the queue
                    self.taken += 1
                    turn.set_result(None)


def _check(slots: int) -> None:
    if slots < 1:
        raise ValueError(f"a limit needs at least 1 slot, got {slots}")
