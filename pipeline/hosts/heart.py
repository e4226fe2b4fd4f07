"""Heartbeats: processes are asked again and again whether they live, and those that do not answer are told of."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final

from dorylax.clock.base import Clock
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.transport.base import Address, Transport

BEATS = 5
"""That a process may miss, one after the other: after the time-out it has missed the last of them."""


@final
class Heart:
    """Watches other processes.

    Beats are counted, not seconds: a watcher that was stopped itself, as a laptop is that sleeps, takes nobody for lost.

    Args:
        home: who asks.
        transport: to them.
        clock: when.
        timeout: seconds without an answer after which a process counts as lost.
        on_silence: told of its number.
    """

    def __init__(
        self, home: Address, transport: Transport, clock: Clock, timeout: float, on_silence: Callable[[int], None]
    ) -> None:
        self._home, self._transport, self._clock = home, transport, clock
        self._pause, self._on_silence = timeout / BEATS, on_silence
        self._scope = ClockScope(clock)

    def watch(self, numbers: Sequence[int]) -> None:
        """Watches these processes, and no longer those before; all of them live now."""
        self.stop()
        self._scope = ClockScope(self._clock)
        for number in numbers:
            self._scope.spawn(self._watch(number, self._scope), name=f"heartbeat of process {number}")

    def stop(self) -> None:
        """Watches nobody."""
        self._scope.cancel()

    async def _watch(self, number: int, scope: ClockScope) -> None:
        asked: deque[asyncio.Task[Any]] = deque(
            maxlen=BEATS
        )  # one that is lost with its connection is not the only one
        missed = beat = 0
        while missed < BEATS:
            if len(asked) == BEATS:
                asked[0].cancel()
            asked.append(scope.spawn(self._ask(number, beat)))
            await self._clock.sleep(self._pause, (number, beat))
            beat += 1
            missed = 0 if any(one.done() for one in asked) else missed + 1
            asked = deque((one for one in asked if not one.done()), BEATS)
        self._on_silence(number)

    async def _ask(self, number: int, beat: int) -> None:
        receiver = Address("process", number)
        await self._transport.request(self._home, receiver, "beat", None, num_bytes=0, order=(beat, number))
