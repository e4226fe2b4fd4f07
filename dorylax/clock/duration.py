"""Durations on the virtual clock: fixed seconds, or amounts of shared resources."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

from dorylax.clock.sharing import Job, Order, Sharing, Speeds
from dorylax.clock.virtual_loop import VirtualLoop


@final
class Shared:
    """A resource with concurrent users: a network, the memory of a server, its cores.

    Args:
        loop: Loop of the virtual clock.
        speeds: Speeds of users (`dorylax.clock.sharing`).
        kinds: Number of kinds of uses.
    """

    def __init__(self, loop: VirtualLoop, speeds: Speeds, kinds: int) -> None:
        self._loop = loop
        self._sharing = Sharing(speeds, kinds)
        # End of the next use, and its event. New uses delay the end: an event that is too early is repeated, which costs
        # less than a cancellation each time.
        self._due: tuple[float, Order] | None = None
        self._event = 0
        # Whether speeds have changed at this moment; the next use is looked up at its end, after all changes.
        self._changing = False

    def use(self, amount: float, kind: int, order: Order, served: Callable[[], None]) -> Job:
        """Start a use, and return it for `give_up`.

        Args:
            amount: Amount (> 0), in the resource's unit.
            kind: Kind of the use; each has a separate speed.
            order: Order of uses that end at the same time.
            served: Called when the amount is served.
        """
        job = self._sharing.add(self._loop.now, amount, kind, order, served)
        self._change()
        return job

    def give_up(self, use: Job) -> None:
        """Give up the rest of a use, unless it is served."""
        if self._sharing.remove(self._loop.now, use):
            self._change()

    def _change(self) -> None:
        if not self._changing:
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
        self._change()
        served()


class Use(NamedTuple):
    """A simultaneous use of one or more shared resources.

    Attributes:
        of: The resources; a resource may occur twice, for two users.
        amount: Amount of each (> 0).
        kind: Kind of the use.
    """

    of: tuple[Shared, ...]
    amount: float
    kind: int = 0


Part = float | tuple[Use, ...]
"""Seconds, or uses that start together; the part ends when all are served."""

Duration = float | tuple[Part, ...]
"""Seconds, or a sequence of parts."""


def check_duration(duration: Duration) -> None:
    """Raise a ValueError unless the argument is a duration."""
    for part in duration if isinstance(duration, tuple) else (duration,):
        if not isinstance(part, tuple) and not 0 <= part < math.inf:
            raise ValueError(f"seconds must be finite and ≥ 0, got {part}")


@final
class Passing:
    """The passing of a duration, part by part.

    Args:
        duration: A checked duration.
        order: Order of the events at the ends of its parts.
        loop: Loop of the virtual clock.
        over: Called at the end of the last part.
    """

    __slots__ = ("_event", "_loop", "_missing", "_order", "_over", "_part", "_parts", "_uses")

    def __init__(self, duration: Duration, order: Order, loop: VirtualLoop, over: Callable[[], object]) -> None:
        self._loop, self._uses = loop, list[Job]()
        if not isinstance(duration, tuple):
            self._event = loop.happen_at(loop.now + duration, order, over)
            return
        self._parts = iter(duration)
        self._order, self._over = order, over
        self._event = 0  # an event that has happened, or never will
        self._part: tuple[Use, ...] = ()  # the current one
        self._missing = 0
        self._go_on()

    def give_up(self) -> None:
        """Give up all uses; `over` is then never called."""
        self._loop.forget(self._event)
        if self._uses:
            every = [one for of, _, _ in self._part for one in of]
            for one, use in zip(every, self._uses, strict=True):
                one.give_up(use)
            self._uses = []

    def _go_on(self) -> None:
        for part in self._parts:
            if isinstance(part, tuple):
                order, served, uses = self._order, self._served, []
                for of, amount, kind in part:
                    for one in of:
                        uses.append(one.use(amount, kind, order, served))
                self._part, self._uses, self._missing = part, uses, len(uses)
            else:
                loop = self._loop
                self._event = loop.happen_at(loop.now + part, self._order, self._go_on)
            return
        self._over()

    def _served(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._uses = []  # avoids a reference cycle
            self._go_on()
