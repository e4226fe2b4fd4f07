"""The transport within one process: an ordinary call, which takes as long as a message would on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.cost.machines import Place
from dorylax.pipeline.transport.base import Address, RequestHandler, Role, Then, Waiting, payload_bytes
from dorylax.pipeline.transport.first_step import Begun, begin, finished

Seconds = Callable[[Address, Address, int, tuple[int, ...]], Duration]
"""(sender, receiver, bytes, order) → what a message takes."""

_ROLES: dict[str, int] = {"graph": 0, "parameter": 1}


def modelled(times: TimeModel) -> Seconds:
    """What messages take by a model of their cost."""

    def seconds(sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> Duration:
        assert sender.role in _ROLES, f"only servers send messages, not {sender.role}"
        here: Place = (sender.role, sender.index)
        there: Place = (receiver.role, receiver.index)
        key = (_ROLES[sender.role], sender.index, _ROLES[receiver.role], receiver.index, *order)
        return times.message(key, bytes=num_bytes, sender=here, receiver=there)

    return seconds


@final
class InProcessTransport:
    """Delivers exactly once, by reference.

    Args:
        clock: on which messages travel.
        seconds: how long, given `(*order, 0)` for a request and `(*order, 1)` for its reply, the bytes of which are those
            of its arrays; None where neither waits, as on the real clock.

    Attributes:
        clock, seconds: as given.
    """

    def __init__(self, clock: Clock, seconds: Seconds | None) -> None:
        self.clock, self.seconds = clock, seconds
        self._handlers: dict[tuple[Role, int], RequestHandler] = {}  # to look up an address itself takes longer

    def register(self, address: Address, handler: RequestHandler) -> None:
        """See `Transport`."""
        self._handlers[address.role, address.index] = handler

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
        self.handler(receiver, kind)
        await self._travel(sender, receiver, num_bytes, (*order, 0))
        reply = await self.handler(receiver, kind).handle(kind, payload, sender)
        if self.seconds is not None:
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
        """See `Transport`. No task is made for it, unless its receiver waits for something while handling it."""
        posted = _Posted(self, sender, receiver, kind, payload, order=order, then=then)
        posted.travel(sender, receiver, num_bytes, posted.arrive)

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self.seconds is not None:
            await self.clock.sleep(self.seconds(sender, receiver, num_bytes, order), order)

    def handler(self, receiver: Address, kind: str) -> RequestHandler:
        """Who answers there; a LookupError if nobody does."""
        found = self._handlers.get((receiver.role, receiver.index))
        if found is None:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        return found


@final
class _Posted:
    """A request on its way, and then its answer: one small object, since a simulation makes hundreds of thousands."""

    __slots__ = ("_kind", "_order", "_payload", "_receiver", "_sender", "_then", "_transport")

    def __init__(
        self,
        transport: InProcessTransport,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        order: tuple[int, ...],
        then: Then,
    ) -> None:
        self._transport, self._sender, self._receiver = transport, sender, receiver
        self._kind, self._payload, self._then = kind, payload, then
        self._order = (*order, 0)

    def travel(self, sender: Address, receiver: Address, num_bytes: int, call: Callable[[], None]) -> None:
        """Goes from one to another, and then calls something."""
        transport, order = self._transport, self._order
        seconds = 0.0 if transport.seconds is None else transport.seconds(sender, receiver, num_bytes, order)
        transport.clock.after(seconds, order, call, name=self._kind)

    def arrive(self) -> None:
        """Is handled, and answered."""
        payload, self._payload = self._payload, None
        try:
            handler = self._transport.handler(self._receiver, self._kind)
            begun = begin(handler.handle(self._kind, payload, self._sender))
        except Exception as error:
            self._tell(error)
        else:
            if begun.rest is None:
                self._reply(begun.value)
            else:
                name = f"{self._kind} from {self._sender.role} server {self._sender.index}"
                self._transport.clock.spawn(self._wait(begun), name=name)

    async def _wait(self, begun: Begun[Any]) -> None:
        try:
            answer = await finished(begun)
        except Exception as error:
            self._tell(error)
        else:
            self._reply(answer)

    def _reply(self, answer: Any) -> None:
        if self._transport.seconds is None:
            self._tell(None)
        else:
            self._order = (*self._order[:-1], 1)
            num_bytes = 0 if answer is None else payload_bytes(answer)
            self.travel(self._receiver, self._sender, num_bytes, self._answered)

    def _answered(self) -> None:
        self._then(0.0, None)

    def _tell(self, error: Exception | None) -> None:
        self._then(0.0, error)
        if error is not None:
            raise error
