"""How much of what a process sends may be on its way at a time.

Where processes exchange rows, what was sent and is not yet taken lies in memory twice: with the sender, and with the
receiver. Without a bound that would be all rows of a value at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
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

    @contextlib.asynccontextmanager
    async def room(self, num_bytes: int) -> AsyncIterator[None]:
        """Waits until a message may go; it has to be there when the block is left.

        Args:
            num_bytes: of the message.
        """
        async with self._turn:
            while self._used and self._used + num_bytes > self._most:
                self._freed.clear()
                await self._freed.wait()
            self._used += num_bytes
        try:
            yield
        finally:
            self._used -= num_bytes
            self._freed.set()
