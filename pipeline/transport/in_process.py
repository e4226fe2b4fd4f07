"""The transport within one process: an ordinary call, which takes as long as a message would on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.cost.machines import Place
from dorylax.pipeline.transport.base import Address, RequestHandler, Then, Waiting, payload_bytes
from dorylax.pipeline.transport.first_step import Begun, begin, finished

Seconds = Callable[[Address, Address, int, tuple[int, ...]], Duration]
"""(sender, receiver, bytes, order) → what a message takes."""

_ROLES: dict[str, int] = {"graph": 0, "parameter": 1}


def modelled(times: TimeModel) -> Seconds:
    """What messages take by a model of their cost."""

    def seconds(sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> Duration:
        assert sender.role in _ROLES, f"only servers send messages, not {sender.role}"
        key = (_ROLES[sender.role], sender.index, _ROLES[receiver.role], receiver.index, *order)
        places: tuple[Place, Place] = (sender.role, sender.index), (receiver.role, receiver.index)
        return times.message(key, bytes=num_bytes, sender=places[0], receiver=places[1])

    return seconds


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
        self._handler(receiver, kind)
        await self._travel(sender, receiver, num_bytes, (*order, 0))
        reply = await self._handler(receiver, kind).handle(kind, payload, sender)
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
        """See `Transport`. No task is made for it, unless its receiver waits for something while handling it."""
        name = f"{kind} from {sender.role} server {sender.index}"

        def tell(error: Exception | None) -> None:
            then(0.0, error)
            if error is not None:
                raise error

        def arrive() -> None:
            try:
                begun = begin(self._handler(receiver, kind).handle(kind, payload, sender))
            except Exception as error:
                tell(error)
            else:
                if begun.rest is None:
                    reply(begun.value)
                else:
                    self._clock.spawn(wait(begun), name=name)

        async def wait(begun: Begun[Any]) -> None:
            try:
                answer = await finished(begun)
            except Exception as error:
                tell(error)
            else:
                reply(answer)

        def reply(answer: Any) -> None:
            if self._seconds is None:
                tell(None)
                return
            back = (*order, 1)
            seconds = self._seconds(receiver, sender, payload_bytes(answer), back)
            self._clock.after(seconds, back, partial(tell, None), name=name)

        there = (*order, 0)
        seconds = 0.0 if self._seconds is None else self._seconds(sender, receiver, num_bytes, there)
        self._clock.after(seconds, there, arrive, name=name)

    def _handler(self, receiver: Address, kind: str) -> RequestHandler:
        if receiver not in self._handlers:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        return self._handlers[receiver]

    async def _travel(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> None:
        if self._seconds is not None:
            await self._clock.sleep(self._seconds(sender, receiver, num_bytes, order), order)
