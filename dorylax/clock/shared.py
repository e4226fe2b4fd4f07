"""What tasks share on the virtual clock: `Sharing`, with an event when the next of them is served."""

from __future__ import annotations

from collections.abc import Callable
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
        # When somebody is to be served, and what happens then. While others come it gets later: an event that is too early
        # asks again, which costs less than to cancel it each time.
        self._due: tuple[float, tuple[int, ...]] | None = None
        self._event = 0
        # Whether speeds have changed, perhaps not for the last time at this moment: who is next is asked when it is over.
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
        """Waits for the end of whatever is served next."""
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
