"""Limits the bytes in flight from a process.

Rows in flight occupy memory twice, at the sender and at the receiver. Without a limit, all rows of a value would be
in flight together.
"""

from __future__ import annotations

import asyncio
from typing import final

WINDOW_BYTES = 64 * 2**20
"""Exceeds the capacity of a network: 25 Gbit/s for 20 ms."""


@final
class Window:
    """Admits messages in order while their bytes fit the window; a larger message is admitted alone.

    Args:
        num_bytes: Size of the window in bytes.
    """

    def __init__(self, num_bytes: int = WINDOW_BYTES) -> None:
        self._most, self._used = num_bytes, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def enter(self, num_bytes: int) -> None:
        """Wait until a message is admitted.

        Args:
            num_bytes: Bytes of the message. Pass the same number to `leave` after its delivery.
        """
        if not self._turn.locked() and not self._is_full(num_bytes):  # skip a turn of the loop if the queue is empty
            self._used += num_bytes
            return
        async with self._turn:
            while self._is_full(num_bytes):
                self._freed.clear()
                await self._freed.wait()
            self._used += num_bytes

    def leave(self, num_bytes: int) -> None:
        """Free the bytes of a delivered message."""
        self._used -= num_bytes
        self._freed.set()

    def _is_full(self, num_bytes: int) -> bool:
        return bool(self._used) and self._used + num_bytes > self._most
