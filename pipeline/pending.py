"""How much is under way, and who waits until nothing is."""

from __future__ import annotations

import asyncio
from typing import final


@final
class Pending:
    """Counts what has begun and not ended; for one who waits at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._nothing: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Something is under way."""
        self._count += 1

    def end(self) -> None:
        """It is no longer."""
        self._count -= 1
        if not self._count and self._nothing is not None and not self._nothing.done():
            self._nothing.set_result(None)

    async def nothing(self) -> None:
        """Returns when nothing is under way."""
        while self._count:
            self._nothing = asyncio.get_running_loop().create_future()
            await self._nothing
