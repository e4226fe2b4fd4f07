"""The transport within one process: an ordinary call, which takes as long as a message would on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from dorylax.clock import Clock
from dorylax.pipeline.transport.base import Address, Endpoint, payload_bytes

Seconds = Callable[[Address, Address, int, tuple[int, ...]], float]
"""(sender, receiver, bytes, order) → seconds that a message takes."""


@final
class InProcessTransport:
    """Delivers exactly once, by reference.

    Args:
        clock: on the virtual clock request and reply each take their time; on the real one neither waits.
        seconds: how long, given `(*order, 0)` for a request and `(*order, 1)` for its reply, the bytes of which are
            those of its arrays.
    """

    def __init__(self, clock: Clock, seconds: Seconds) -> None:
        self._clock, self._seconds = clock, seconds
        self._endpoints: dict[Address, Endpoint] = {}

    def register(self, address: Address, endpoint: Endpoint) -> None:
        """See `Transport`."""
        self._endpoints[address] = endpoint

    async def request(
        self, sender: Address, receiver: Address, kind: str, payload: Any, *, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        """See `Transport`."""
        if receiver not in self._endpoints:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        await self._travel(sender, receiver, num_bytes, (*order, 0))
        reply = await self._endpoints[receiver].handle(kind, payload, sender)
        if self._clock.kind == "virtual":
            await self._travel(receiver, sender, payload_bytes(reply), (*order, 1))
        return reply

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self._clock.kind == "virtual":
            await self._clock.sleep(self._seconds(sender, receiver, num_bytes, order), order)
