"""The transport within one process: an ordinary call, which takes as long as a message would on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.cost.machines import Place
from dorylax.pipeline.transport.base import Address, RequestHandler, Then, Waiting, payload_bytes
from dorylax.pipeline.transport.delivery import posted

Seconds = Callable[[Address, Address, int, tuple[int, ...]], Duration]
"""(sender, receiver, bytes, order) → what a message takes."""

_ROLES = ("graph", "parameter")


def modelled(times: TimeModel) -> Seconds:
    """What messages take by a model of their cost."""

    def seconds(sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> Duration:
        key = (_ROLES.index(sender.role), sender.index, _ROLES.index(receiver.role), receiver.index, *order)
        return times.message(key, bytes=num_bytes, sender=_place(sender), receiver=_place(receiver))

    return seconds


def _place(address: Address) -> Place:
    assert address.role in _ROLES, f"only servers send messages, not {address.role}"
    return address.role, address.index


@final
class InProcessTransport:
    """Delivers exactly once, by reference.

    Args:
        clock: on which messages travel.
        seconds: how long, given `(*order, 0)` for a request and `(*order, 1)` for its reply, the bytes of which are those
            of its arrays; None where neither waits, as on the real clock.
    """

    def __init__(self, clock: Clock, seconds: Seconds | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._handlers: dict[Address, RequestHandler] = {}

    def register(self, address: Address, handler: RequestHandler) -> None:
        """See `Transport`."""
        self._handlers[address] = handler

    async def request(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],
    ) -> Any:
        """See `Transport`."""
        if receiver not in self._handlers:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        await self._travel(sender, receiver, num_bytes, (*order, 0))
        reply = await self._handlers[receiver].handle(kind, payload, sender)
        if self._seconds is not None:
            await self._travel(receiver, sender, payload_bytes(reply), (*order, 1))
        return reply

    def post(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],
        waiting: Waiting,  # noqa: ARG002
        then: Then,
    ) -> None:
        """See `Transport`."""
        request = posted(self, sender, receiver, kind, payload, num_bytes=num_bytes, order=order, then=then)
        self._clock.spawn(request, name=f"{kind} from {sender.role} server {sender.index}")

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self._seconds is not None:
            await self._clock.sleep(self._seconds(sender, receiver, num_bytes, order), order)
