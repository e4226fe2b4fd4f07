"""How much of what a process sends may be on its way at a time.

Where processes exchange rows, what was sent and is not yet taken lies in memory twice: with the sender, and with the
receiver. Without a bound that would be all rows of a value at once.
"""

from __future__ import annotations

import asyncio
from typing import final

WINDOW_BYTES = 64 * 2**20
"""More than a network holds: 25 Gbit/s for 20 ms."""


@final
class Window:
    """Lets messages go, in order, as long as no more than so many bytes are on their way; one of more goes alone.

    Args:
        num_bytes: how many.
    """

    def __init__(self, num_bytes: int = WINDOW_BYTES) -> None:
        self._most, self._used = num_bytes, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def enter(self, num_bytes: int) -> None:
        """Waits until a message may go.

        Args:
            num_bytes: of the message; `leave` is told the same once it is there.
        """
        if not self._turn.locked() and not self._is_full(num_bytes):  # no turn of the loop where nobody waits
            self._used += num_bytes
            return
        async with self._turn:
            while self._is_full(num_bytes):
                self._freed.clear()
                await self._freed.wait()
            self._used += num_bytes

    def leave(self, num_bytes: int) -> None:
        """A message is there."""
        self._used -= num_bytes
        self._freed.set()

    def _is_full(self, num_bytes: int) -> bool:
        return bool(self._used) and self._used + num_bytes > self._most
