"""`Pool`: an `Invoker` over sandboxes in processes; `local`, `emulator` and `ray` define the processes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import final

from dorylax.serverless.backends.process_slots import ProcessSlots, Sandboxed


@final
class Pool:
    """An `Invoker` over sandboxes that each process one event at a time.

    Sandboxes start on demand or with `warm`, and stop with the last reference to the pool.

    Args:
        workers: Number of sandboxes, ≥ 1.
        start: Starts one sandbox.
        start_seconds: Time limit of a start.
        closed: Called once after the end of all sandboxes.

    Raises:
        ValueError: `workers` is below 1.
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
        # Also at exit, and with the last reference.
        self._close = weakref.finalize(self, self._slots.close)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running sandboxes, without their children."""
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
