"""How long something takes on the virtual clock: so many seconds, or as long as others leave it of what is shared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, final


class Shared(Protocol):
    """Something that several tasks use at the same time: a network, the memory of a server, its cores."""

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Any:
        """Begins to use it.

        Args:
            amount: of which unit, whoever has made it says; > 0.
            kind: which kind of use this is; each has a speed of its own.
            order: who goes first where two are done at the same time.
            served: called when the amount is served.

        Returns:
            What `give_up` takes.
        """
        ...

    def give_up(self, use: Any) -> None:
        """Gives up the rest of a use; nothing happens if it is served."""
        ...


class Use(NamedTuple):
    """An amount of something shared, or of several things at once.

    Attributes:
        of: what is used; what is in it twice, by two at a time.
        amount: how much of each, > 0.
        kind: which kind of use this is.
    """

    of: tuple[Shared, ...]
    amount: float
    kind: int = 0


Part = float | tuple[Use, ...]
"""Seconds, or uses that begin together: the part is over when all are served."""

Duration = float | tuple[Part, ...]
"""Seconds, or parts one after the other."""


def check_duration(duration: Duration) -> None:
    """Refuses what is not a duration, with a ValueError."""
    for part in duration if isinstance(duration, tuple) else (duration,):
        if not isinstance(part, tuple) and not 0 <= part < math.inf:
            raise ValueError(f"seconds must be finite and ≥ 0, got {part}")


class Waker(Protocol):
    """Where time comes from: the loop of a clock.

    Attributes:
        now: seconds.
    """

    now: float

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> int:
        """Calls `happen` at that time, unless what it returns is forgotten before."""
        ...

    def forget(self, event: int) -> None:
        """An event is not to happen; nothing changes if it has."""
        ...


@final
class Passing:
    """Something that takes its time, part by part.

    Args:
        duration: checked.
        order: of the events at the ends of its parts.
        waker: tells when seconds are over.
        over: called when the last part is over.
    """

    __slots__ = ("_event", "_missing", "_order", "_over", "_part", "_parts", "_uses", "_waker")

    def __init__(self, duration: Duration, order: tuple[int, ...], waker: Waker, over: Callable[[], object]) -> None:
        self._waker, self._uses = waker, list[Any]()
        if not isinstance(duration, tuple):
            self._event = waker.happen_at(waker.now + duration, order, over)
            return
        self._parts = iter(duration)
        self._order, self._over = order, over
        self._event = 0  # that has happened, or never will
        self._part: tuple[Use, ...] = ()  # that goes on, and what it uses
        self._missing = 0
        self._go_on()

    def give_up(self) -> None:
        """Uses nothing any more, and is never over."""
        self._waker.forget(self._event)
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
                waker = self._waker
                self._event = waker.happen_at(waker.now + part, self._order, self._go_on)
            return
        self._over()

    def _served(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._uses = []  # they know of this, and are not to form a circle with it
            self._go_on()
