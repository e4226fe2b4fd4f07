"""The transport within one process: a function call. On the virtual clock it takes the modelled time of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.cost.machines import Place
from dorylax.pipeline.transport.base import Address, RequestHandler, Role, Then, Waiting, payload_bytes
from dorylax.pipeline.transport.first_step import Begun, begin, finished

Seconds = Callable[[Address, Address, int, tuple[int, ...]], Duration]
"""(sender, receiver, bytes, order) → duration of a message."""

_ROLES: dict[str, int] = {"graph": 0, "parameter": 1}


def modelled(times: TimeModel) -> Seconds:
    """Return the durations of messages by a time model."""

    def seconds(sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> Duration:
        assert sender.role in _ROLES, f"only servers send messages, not {sender.role}"
        here: Place = (sender.role, sender.index)
        there: Place = (receiver.role, receiver.index)
        key = (_ROLES[sender.role], sender.index, _ROLES[receiver.role], receiver.index, *order)
        return times.message(key, bytes=num_bytes, sender=here, receiver=there)

    return seconds


@final
class InProcessTransport:
    """Delivers each request exactly once, by reference.

    Args:
        clock: Clock of the run.
        seconds: Duration of a message, with order `(*order, 0)` for a request and `(*order, 1)` for its reply. The bytes
            of a reply are those of its arrays. None: messages take no time, as on the real clock.
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
        """See `Transport`. A task is created only if the handler waits."""
        posted = _Posted(self, sender, receiver, kind, payload, order=order, then=then)
        posted.travel(sender, receiver, num_bytes, posted.arrive)

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self.seconds is not None:
            await self.clock.sleep(self.seconds(sender, receiver, num_bytes, order), order)

    def handler(self, receiver: Address, kind: str) -> RequestHandler:
        """Return the handler of an address, or raise LookupError."""
        found = self._handlers.get((receiver.role, receiver.index))
        if found is None:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        return found


@final
class _Posted:
    """A post in flight, and later its reply. One small object, because a simulation creates hundreds of thousands."""

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
        """Schedule a callback after the duration of a message."""
        transport, order = self._transport, self._order
        seconds = 0.0 if transport.seconds is None else transport.seconds(sender, receiver, num_bytes, order)
        transport.clock.after(seconds, order, call, name=self._kind)

    def arrive(self) -> None:
        """Handle the request, and send the reply."""
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
