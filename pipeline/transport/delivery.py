"""Delivery of requests: one handling of all repeats, and a limit of the bytes in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, NamedTuple, final

from dorylax.pipeline.transport.base import WHOLE_PROCESS, Role


class Answered(NamedTuple):
    """An answered request.

    Attributes:
        reply: The reply, to be sent again because the first one may be lost.
    """

    reply: Any


@final
class Inbox:
    """Deduplicates the requests to a process: each is handled once, even if repeats arrive late.

    It keeps requests by sender and number, and their replies until no repeat can follow. A sender numbers its requests
    upwards, and reports in each message the number below which it has all replies.

    Attributes:
        generation: Generation of the run, -1 before the first.
        refused: Number of refused requests from other generations.
    """

    def __init__(self) -> None:
        self.generation = -1
        self.refused = 0
        self._begun: dict[Hashable, dict[int, Answered | None]] = {}
        self._oldest: dict[Hashable, int] = {}

    def refuses(self, generation: int, role: Role) -> bool:
        """Return whether a request is refused: its generation differs, and its receiver is not a whole process."""
        refused = generation != self.generation and role not in WHOLE_PROCESS
        self.refused += refused
        return refused

    def begin(self, source: Hashable, number: int) -> Answered | bool:
        """Return whether to handle a request, or its earlier reply."""
        if number < self._oldest.get(source, 0):
            return False
        begun = self._begun.setdefault(source, {})
        if number in begun:
            return begun[number] or False
        begun[number] = None
        return True

    def answer(self, source: Hashable, number: int, reply: Any) -> None:
        """Keep the reply of a request."""
        if number >= self._oldest.get(source, 0):
            self._begun.setdefault(source, {})[number] = Answered(reply)

    def give_up(self, source: Hashable, number: int) -> None:
        """Drop an unanswered request, so that a repeat counts as new."""
        self._begun.get(source, {}).pop(number, None)

    def forget(self, source: Hashable, oldest: int) -> None:
        """Drop the replies below a number, because the sender has them."""
        if oldest > self._oldest.get(source, 0):
            self._oldest[source] = oldest
            begun = self._begun.get(source, {})
            for number in [number for number in begun if number < oldest]:
                del begun[number]


WINDOW_BYTES = 64 * 2**20
"""Exceeds the capacity of a network: 25 Gbit/s for 20 ms."""


@final
class Window:
    """Limits the bytes in flight from a process.

    Rows in flight occupy memory twice, at the sender and at the receiver. Without a limit, all rows of a value would be in
    flight together. Messages are admitted in order while their bytes fit the window; a larger message is admitted alone.

    Args:
        num_bytes: Size of the window in bytes.
    """

    def __init__(self, num_bytes: int = WINDOW_BYTES) -> None:
        self._most, self._used = num_bytes, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def enter(self, num_bytes: int) -> None:
        """Wait until a message is admitted.

        Args:
            num_bytes: Bytes of the message. Pass the same number to `leave` after its delivery.
        """
        if not self._turn.locked() and not self._is_full(num_bytes):  # skip a turn of the loop if the queue is empty
            self._used += num_bytes
            return
        async with self._turn:
            while self._is_full(num_bytes):
                self._freed.clear()
                await self._freed.wait()
            self._used += num_bytes

    def leave(self, num_bytes: int) -> None:
        """Free the bytes of a delivered message."""
        self._used -= num_bytes
        self._freed.set()

    def _is_full(self, num_bytes: int) -> bool:
        return bool(self._used) and self._used + num_bytes > self._most
