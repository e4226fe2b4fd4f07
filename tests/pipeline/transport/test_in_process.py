from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.pipeline.transport.base import Address, RequestHandler, Transport, payload_bytes
from dorylax.pipeline.transport.in_process import InProcessTransport

HERE, THERE = Address("graph", 0), Address("parameter", 1)


class Echo:
    """Answers with what it was asked, twice."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked = clock, list[Any]()

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        self.asked.append((kind, sender, self.clock.now()))
        return [payload, payload]


def request(transport: Transport, payload: Any) -> Any:
    return transport.request(HERE, THERE, "ask", payload, num_bytes=payload_bytes(payload), order=(7,))


def test_request_and_reply_take_their_time_on_the_virtual_clock() -> None:
    travelled = []

    def seconds(sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> float:
        travelled.append((sender, receiver, num_bytes, order))
        return float(num_bytes)

    payload = {"x": np.zeros(4, np.float32), "y": 1}
    with VirtualClock() as clock:
        transport, echo = InProcessTransport(clock, seconds), Echo(clock)
        assert isinstance(transport, Transport)
        assert isinstance(echo, RequestHandler)
        transport.register(THERE, echo)
        reply = clock.run(request(transport, payload))
        assert clock.now() == 48
    assert reply[0] is payload
    assert echo.asked == [("ask", HERE, 16.0)]
    assert travelled == [(HERE, THERE, 16, (7, 0)), (THERE, HERE, 32, (7, 1))]


def test_the_last_to_register_answers() -> None:
    with VirtualClock() as clock:
        transport = InProcessTransport(clock, lambda *_: 0.0)
        with pytest.raises(LookupError, match="nobody is registered as parameter server 1 to answer 'ask'"):
            clock.run(request(transport, 1))
        first, second = Echo(clock), Echo(clock)
        transport.register(THERE, first)
        transport.register(THERE, second)
        clock.run(request(transport, 1))
        assert (len(first.asked), len(second.asked)) == (0, 1)


def test_a_post_goes_its_way_while_its_sender_goes_on() -> None:
    told = []
    with VirtualClock() as clock:
        transport, echo = InProcessTransport(clock, lambda *_: 2.0), Echo(clock)
        transport.register(THERE, echo)

        async def sender() -> None:
            options: Any = {"num_bytes": 1, "order": (7,), "waiting": "nobody"}
            transport.post(HERE, THERE, "ask", 1, **options, then=lambda *what: told.append((clock.now(), *what)))
            assert clock.now() == 0
            await clock.sleep(5.0, ())

        clock.run(sender())
    assert echo.asked == [("ask", HERE, 2.0)]
    assert told == [(4.0, 0.0, None)]


class Slow(Echo):
    """Waits before it answers."""

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        await self.clock.sleep(10.0, ())
        return await super().handle(kind, payload, sender)


class Deaf:
    """Cannot answer."""

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        raise ValueError(f"cannot answer {kind!r}")


def post(transport: Transport, then: Any) -> None:
    transport.post(HERE, THERE, "ask", 1, num_bytes=1, order=(7,), waiting="nobody", then=then)


def test_a_receiver_may_wait_while_it_handles_a_post() -> None:
    told = []
    with VirtualClock() as clock:
        transport = InProcessTransport(clock, lambda *_: 2.0)
        transport.register(THERE, Slow(clock))

        async def sender() -> None:
            post(transport, lambda *what: told.append((clock.now(), *what)))
            await clock.sleep(20.0, ())

        clock.run(sender())
    assert told == [(14.0, 0.0, None)]


@pytest.mark.parametrize("kind", ["virtual", "real"])
@pytest.mark.parametrize("registered", [True, False])
def test_a_post_that_is_not_answered_ends_the_run(kind: str, registered: bool) -> None:
    told = []
    with VirtualClock() if kind == "virtual" else RealClock() as clock:
        transport = InProcessTransport(clock, (lambda *_: 2.0) if kind == "virtual" else None)
        if registered:
            transport.register(THERE, Deaf())

        async def sender() -> None:
            post(transport, lambda ago, error: told.append((ago, str(error))))
            await clock.sleep(20.0, ())

        problem = "cannot answer 'ask'" if registered else "nobody is registered as parameter server 1"
        with pytest.raises(ValueError if registered else LookupError, match=problem):
            clock.run(sender())
    ((ago, text),) = told
    assert ago == 0.0
    assert problem in text
