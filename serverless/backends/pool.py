"""`Pool`: sandboxes in processes, as an `Invoker`; `local`, `emulator` and `ray` say which processes, and where."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import final

from dorylax.serverless.backends.process_slots import ProcessSlots, Sandboxed


@final
class Pool:
    """Sandboxes that each take one event at a time; an `Invoker`.

    They start when they are needed, or with `warm`, and end when the pool is no longer referenced.

    Args:
        workers: how many, ≥ 1.
        start: makes one.
        start_seconds: how long one may take to be ready.
        closed: called once, when all have been ended.

    Raises:
        ValueError: fewer than 1 worker.
    """

    def __init__(
        self,
        workers: int,
        start: Callable[[], Sandboxed],
        start_seconds: float,
        *,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be ≥ 1, got {workers}")
        self._slots = ProcessSlots(workers, start, start_seconds, closed)
        # Also if nobody closes it: at the end of the process, or when it is no longer referenced.
        self._close = weakref.finalize(self, self._slots.close)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the sandboxes that run now; their children are not listed."""
        return self._slots.pids

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker` and `ProcessSlots.invoke`."""
        return await self._slots.invoke(event, timeout)

    async def warm(self) -> None:
        """See `ProcessSlots.warm`."""
        await self._slots.warm()

    def close(self) -> None:
        """See `ProcessSlots.close`."""
        self._close()
