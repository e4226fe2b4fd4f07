"""Shared resources on the virtual clock: `Sharing`, with an event at the end of the next use."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from dorylax.clock.sharing import Job, Sharing, Speeds
from dorylax.clock.virtual_loop import VirtualLoop


@final
class VirtualShared:
    """See `Shared`.

    Args:
        loop: Loop of the clock.
        speeds: Speeds of uses.
        kinds: Number of kinds of uses.
    """

    def __init__(self, loop: VirtualLoop, speeds: Speeds, kinds: int) -> None:
        self._loop = loop
        self._sharing = Sharing(speeds, kinds)
        # End of the next use, and its event. New uses delay the end: an event that is too early is repeated, which costs
        # less than a cancellation each time.
        self._due: tuple[float, tuple[int, ...]] | None = None
        self._event = 0
        # Whether speeds have changed at this moment; the next use is looked up at its end, after all changes.
        self._changing = False

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Job:
        """See `Shared`."""
        job = self._sharing.add(self._loop.now, amount, kind, order, served)
        if not self._changing:
            self._changing = True
            self._loop.before_next(self._expect)
        return job

    def give_up(self, use: Job) -> None:
        """See `Shared`."""
        if self._sharing.remove(self._loop.now, use) and not self._changing:
            self._changing = True
            self._loop.before_next(self._expect)

    def _expect(self) -> None:
        """Schedule the end of the next use."""
        self._changing = False
        due, found = self._due, self._sharing.next()
        if due is not None:
            if found is not None and found >= due:
                return
            self._loop.forget(self._event)
        self._due = found
        if found is not None:
            self._event = self._loop.happen_at(*found, self._serve)

    def _serve(self) -> None:
        due, self._due = self._due, None
        if self._sharing.next() != due:
            self._expect()
            return
        served = self._sharing.finish()[-1]
        self._changing = True
        self._loop.before_next(self._expect)
        served()
