"""What tasks share on the virtual clock: `Sharing`, with an event when the next of them is served."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import final

from dorylax.clock.sharing import Job, Sharing, Speeds
from dorylax.clock.virtual_loop import Event, VirtualLoop


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
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._next: Event | None = None
        self._changing = False

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Job:
        """See `Shared`."""
        job = self._sharing.add(self._loop.time(), amount, kind, order)
        self._waiting[job] = served
        self._changed()
        return job

    def give_up(self, use: Hashable) -> None:
        """See `Shared`."""
        if self._waiting.pop(use, None) is not None:
            assert isinstance(use, Job)
            self._sharing.remove(self._loop.time(), use)
            self._changed()

    def _changed(self) -> None:
        """Speeds have changed, perhaps not for the last time at this moment: who is served next is asked when it is over."""
        if not self._changing:
            self._changing = True
            self._loop.before_next(self._expect)

    def _expect(self) -> None:
        """Waits for the end of whatever is served next."""
        self._changing = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if (found := self._sharing.next()) is not None:
            self._next = self._loop.happen_at(*found, self._serve)

    def _serve(self) -> None:
        self._next = None
        served = self._waiting.pop(self._sharing.finish())
        self._changed()
        served()
