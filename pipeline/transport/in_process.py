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

        def arrive() -> None:
            try:
                begun = begin(self.handler(receiver, kind).handle(kind, payload, sender))
            except Exception as error:
                then(0.0, error)
                raise
            if begun.rest is None:
                reply(begun.value)
            else:
                self.clock.spawn(wait(begun), name=f"{kind} from {sender.role} server {sender.index}")

        async def wait(begun: Begun[Any]) -> None:
            try:
                answer = await finished(begun)
            except Exception as error:
                then(0.0, error)
                raise
            reply(answer)

        def reply(answer: Any) -> None:
            if self.seconds is None:
                then(0.0, None)
            else:
                size = 0 if answer is None else payload_bytes(answer)
                self._after(receiver, sender, size, (*order, 1), lambda: then(0.0, None), name=kind)

        self._after(sender, receiver, num_bytes, (*order, 0), arrive, name=kind)

    def _after(
        self,
        sender: Address,
        receiver: Address,
        num_bytes: int,
        order: tuple[int, ...],
        call: Callable[[], None],
        *,
        name: str,
    ) -> None:
        """Schedule a callback after the duration of a message."""
        seconds = 0.0 if self.seconds is None else self.seconds(sender, receiver, num_bytes, order)
        self.clock.after(seconds, order, call, name=name)

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self.seconds is not None:
            await self.clock.sleep(self.seconds(sender, receiver, num_bytes, order), order)

    def handler(self, receiver: Address, kind: str) -> RequestHandler:
        """Return the handler of an address, or raise LookupError."""
        found = self._handlers.get((receiver.role, receiver.index))
        if found is None:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        return found
