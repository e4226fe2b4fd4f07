"""How long something takes on the virtual clock: so many seconds, or as long as others leave it of what is shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol, final


class Shared(Protocol):
    """Something that several tasks use at the same time: a network, the memory of a server, its cores."""

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Hashable:
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

    def give_up(self, use: Hashable) -> None:
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
        if not isinstance(part, tuple):
            check_seconds(part)


def check_seconds(seconds: float) -> None:
    """Refuses what is not so many seconds, with a ValueError."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds must be finite and ≥ 0, got {seconds}")


class Waker(Protocol):
    """Where time comes from: the loop of a clock."""

    def happen_in(self, seconds: float, order: tuple[int, ...], happen: Callable[[], object]) -> Cancellable:
        """Calls `happen` so many seconds from now, unless what it returns is cancelled before."""
        ...


class Cancellable(Protocol):
    """What may be cancelled."""

    def cancel(self) -> object:
        """Cancels it."""
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
        self._parts = iter(duration if isinstance(duration, tuple) else (duration,))
        self._order, self._waker, self._over = order, waker, over
        self._event: Cancellable | None = None
        self._part: tuple[Use, ...] = ()  # that goes on, and what it uses
        self._uses: Sequence[Hashable] = ()
        self._missing = 0
        self._go_on()

    def give_up(self) -> None:
        """Uses nothing any more, and is never over."""
        if self._event is not None:
            self._event.cancel()
        if self._uses:
            every = [one for of, _, _ in self._part for one in of]
            for one, use in zip(every, self._uses, strict=True):
                one.give_up(use)
            self._uses = ()

    def _go_on(self) -> None:
        part = next(self._parts, None)
        if part is None:
            self._over()
        elif isinstance(part, tuple):
            order, served = self._order, self._served
            self._uses = uses = [one.use(amount, kind, order, served) for of, amount, kind in part for one in of]
            self._part, self._missing = part, len(uses)
        else:
            self._event = self._waker.happen_in(part, self._order, self._go_on)

    def _served(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._uses = ()  # they know of this, and are not to form a circle with it
            self._go_on()
