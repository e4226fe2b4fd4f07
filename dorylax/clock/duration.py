"""How long something takes on the virtual clock: so many seconds, or as long as others leave it of what is shared."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Shared(Protocol):
    """Something that several tasks use at the same time: a network, the memory of a server, its cores."""

    def use(self, amount: float, kind: int, order: tuple[int, ...]) -> asyncio.Future[None]:
        """Begins to use it.

        Args:
            amount: of which unit, whoever has made it says; > 0.
            kind: which kind of use this is; each has a speed of its own.
            order: who goes first where two are done at the same time.

        Returns:
            Done when the amount is served; cancelling it gives the rest up.
        """
        ...


class Use(NamedTuple):
    """An amount of something shared.

    Attributes:
        of: what is used.
        amount: how much of it, > 0.
        kind: which kind of use this is.
    """

    of: Shared
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


async def passing(
    duration: Duration, order: tuple[int, ...], wake_in: Callable[[float, tuple[int, ...]], asyncio.Future[None]]
) -> None:
    """Waits for as long as something takes.

    Args:
        duration: checked.
        order: of the events at the ends of its parts.
        wake_in: gives a future that is done so many seconds from now.
    """
    if not isinstance(duration, tuple):
        await wake_in(duration, order)
        return
    for part in duration:
        if not isinstance(part, tuple):
            await wake_in(part, order)
            continue
        uses = [use.of.use(use.amount, use.kind, order) for use in part]
        try:
            for use in uses:
                await use
        finally:
            for use in uses:
                use.cancel()  # those that are done stay so
