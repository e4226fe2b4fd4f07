"""A counter of operations in progress, with a wait for their completion."""

from __future__ import annotations

import asyncio
from typing import final


@final
class Pending:
    """Counts operations in progress. At most one coroutine may wait at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._nothing: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Record the start of an operation."""
        self._count += 1

    def end(self) -> None:
        """Record the end of an operation."""
        self._count -= 1
        if not self._count and self._nothing is not None and not self._nothing.done():
            self._nothing.set_result(None)

    async def nothing(self) -> None:
        """Wait until no operation is in progress."""
        while self._count:
            self._nothing = asyncio.get_running_loop().create_future()
            await self._nothing
