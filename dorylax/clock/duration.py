"""Durations on the virtual clock: fixed seconds, or amounts of shared resources."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, final


class Shared(Protocol):
    """A resource with concurrent users: a network, the memory of a server, its cores."""

    def use(self, amount: float, kind: int, order: tuple[int, ...], served: Callable[[], None]) -> Any:
        """Start a use.

        Args:
            amount: Amount (> 0), in the resource's unit.
            kind: Kind of the use; each has a separate speed.
            order: Order of uses that end at the same time.
            served: Called when the amount is served.

        Returns:
            The use, for `give_up`.
        """
        ...

    def give_up(self, use: Any) -> None:
        """Give up the rest of a use, unless it is served."""
        ...


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


class Waker(Protocol):
    """The source of time: the loop of a clock.

    Attributes:
        now: Time in seconds.
    """

    now: float

    def happen_at(self, when: float, order: tuple[int, ...], happen: Callable[[], object]) -> int:
        """Call `happen` at that time, unless the returned event is forgotten before."""
        ...

    def forget(self, event: int) -> None:
        """Cancel an event, unless it has happened."""
        ...


@final
class Passing:
    """The passing of a duration, part by part.

    Args:
        duration: A checked duration.
        order: Order of the events at the ends of its parts.
        waker: Source of time.
        over: Called at the end of the last part.
    """

    __slots__ = ("_event", "_missing", "_order", "_over", "_part", "_parts", "_uses", "_waker")

    def __init__(self, duration: Duration, order: tuple[int, ...], waker: Waker, over: Callable[[], object]) -> None:
        self._waker, self._uses = waker, list[Any]()
        if not isinstance(duration, tuple):
            self._event = waker.happen_at(waker.now + duration, order, over)
            return
        self._parts = iter(duration)
        self._order, self._over = order, over
        self._event = 0  # an event that has happened, or never will
        self._part: tuple[Use, ...] = ()  # the current one
        self._missing = 0
        self._go_on()

    def give_up(self) -> None:
        """Give up all uses; `over` is then never called."""
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
            self._uses = []  # avoids a reference cycle
            self._go_on()
