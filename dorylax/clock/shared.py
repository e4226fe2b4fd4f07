"""What tasks share on the virtual clock: `Sharing`, with an event when the next of them is served."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import final

from dorylax.clock.sharing import Job, Sharing, Speeds
from dorylax.clock.virtual_loop import VirtualLoop


@final
class VirtualShared:
    """See `Shared`.

    Args:
        loop: of the clock.
        speeds: who is served how fast.
        kinds: how many kinds of uses there are.
    """

    def __init__(self, loop: VirtualLoop, speeds: Speeds, kinds: int) -> None:
        self._loop = loop
        self._sharing = Sharing(speeds, kinds)
        self._waiting: dict[Job, asyncio.Future[None]] = {}
        self._next: asyncio.Future[None] | None = None

    def use(self, amount: float, kind: int, order: tuple[int, ...]) -> asyncio.Future[None]:
        """See `Shared`."""
        job = self._sharing.add(self._loop.time(), amount, kind, order)
        served: asyncio.Future[None] = self._loop.create_future()
        self._waiting[job] = served
        served.add_done_callback(partial(self._done, job))
        self._expect()
        return served

    def _done(self, job: Job, served: asyncio.Future[None]) -> None:
        if served.cancelled() and self._waiting.pop(job, None) is not None:
            self._sharing.remove(self._loop.time(), job)
            self._expect()

    def _expect(self) -> None:
        """Waits for the end of whatever is served next, now that speeds have changed."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if (found := self._sharing.next()) is not None:
            self._next = self._loop.happen_at(*found, self._serve)

    def _serve(self) -> None:
        self._next = None
        served = self._waiting.pop(self._sharing.finish())
        self._expect()
        if not served.done():  # else it was cancelled just now
            served.set_result(None)
