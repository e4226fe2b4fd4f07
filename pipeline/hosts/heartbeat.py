"""Heartbeats between processes, and reports of silent ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final

from dorylax.clock.base import Clock
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.transport.base import Address, Transport

BEATS = 5
"""Consecutive beats within the time-out; a process that misses all of them is silent."""


@final
class Heartbeat:
    """Watches other processes.

    It counts beats, not seconds, so that a suspended watcher (a sleeping laptop) declares no process lost.

    Args:
        home: Address of the watcher.
        transport: Transport to the processes.
        clock: Clock of the beats.
        timeout: Seconds without a reply after which a process counts as lost.
        on_silence: Called with the number of a silent process.
    """

    def __init__(
        self, home: Address, transport: Transport, clock: Clock, timeout: float, on_silence: Callable[[int], None]
    ) -> None:
        self._home, self._transport, self._clock = home, transport, clock
        self._pause, self._on_silence = timeout / BEATS, on_silence
        self._scope = ClockScope(clock)

    def watch(self, numbers: Sequence[int]) -> None:
        """Watch these processes, which are alive now, instead of the previous ones."""
        self.stop()
        self._scope = ClockScope(self._clock)
        for number in numbers:
            self._scope.spawn(self._watch(number, self._scope), name=f"heartbeat of process {number}")

    def stop(self) -> None:
        """Stop watching."""
        self._scope.cancel()

    async def _watch(self, number: int, scope: ClockScope) -> None:
        asked: deque[asyncio.Task[Any]] = deque(maxlen=BEATS)  # repeat, because a connection may lose one beat
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
