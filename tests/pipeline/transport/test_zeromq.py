"""Two processes' worth of sockets on one loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from support.transports import delivered

from dorylax.clock import RealClock
from dorylax.net import frames
from dorylax.net.keys import RunKeys
from dorylax.pipeline.messages import RowsMessage
from dorylax.pipeline.transport import zeromq
from dorylax.pipeline.transport.base import Address, RequestHandler, Then, Transport, Waiting
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport

HERE, THERE = Address("graph", 0), Address("graph", 1)
CODEC = Codec([RowsMessage], {})


class Echo:
    """Echoes the payload once released."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.may = asyncio.Event()
        self.may.set()

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        self.asked.append((kind, sender))
        await self.may.wait()
        return [payload, kind]


@contextlib.asynccontextmanager
async def two(
    clock: RealClock, kind: Any = "ipc", keys: RunKeys | None = None
) -> AsyncIterator[tuple[ZeroMqTransport, ZeroMqTransport, Echo]]:
    keys, echo = keys or RunKeys.make(), Echo()
    one = ZeroMqTransport(keys, kind, codec=CODEC, spawn=clock.spawn)
    other = ZeroMqTransport(keys, kind, codec=CODEC, spawn=clock.spawn)
    try:
        other.register(THERE, echo)
        one.connect({THERE: other.endpoint})
        yield one, other, echo
    finally:
        one.close()
        other.close()
        other.close()


def run(test: Callable[[RealClock], Coroutine[Any, Any, None]]) -> None:
    with RealClock() as clock:
        clock.run(test(clock))


def ask(transport: Transport, payload: Any, kind: str = "rows") -> Any:
    return transport.request(HERE, THERE, kind, payload, num_bytes=0, order=())


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_a_request_is_answered_by_the_other_process(kind: str) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)

    async def test(clock: RealClock) -> None:
        async with two(clock, kind) as (one, other, echo):
            assert isinstance(one, Transport)
            assert isinstance(echo, RequestHandler)
            message, asked = await ask(one, RowsMessage(3, 2, 1, rows))
            assert asked == "rows"
            assert message[:3] == (3, 2, 1)
            np.testing.assert_array_equal(message.rows, rows)
            assert echo.asked == [("rows", HERE)]
            assert (one.sent["rows"].messages, other.sent["answer"].messages) == (1, 1)
            assert min(one.sent["rows"].bytes, other.sent["answer"].bytes) > rows.nbytes

    run(test)


def test_large_and_many_messages_come_whole_and_beside_each_other() -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, _, _):
            large = np.random.default_rng(0).normal(size=(1 << 16, 16))
            given = [large, *(np.full(k, k) for k in range(300))]
            for (found, _), sent in zip(
                await asyncio.gather(*(ask(one, array) for array in given)), given, strict=True
            ):
                np.testing.assert_array_equal(found, sent)

    run(test)


def test_a_lost_request_is_made_again_and_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "ASK_AGAIN_SECONDS", 0.01)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, _, echo):
            echo.may.clear()
            answer = asyncio.ensure_future(ask(one, 1))
            while not echo.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # it is asked again and again meanwhile
            assert len(echo.asked) == 1
            echo.may.set()
            assert (await answer)[0] == 1

    run(test)


def test_an_address_of_this_process_is_called() -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (_, other, _):
            payload = object()
            assert (await ask(other, payload))[0] is payload
            with pytest.raises(LookupError, match="nobody is registered as graph server 0 to answer 'rows'"):
                await other.request(THERE, HERE, "rows", 1, num_bytes=0, order=())

    run(test)


def test_a_handler_that_fails_ends_the_run_of_its_process() -> None:
    class Broken:
        async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
            raise ValueError("broken")

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            other.register(THERE, Broken())
            await ask(one, 1)

    with pytest.raises(ValueError, match="broken"):
        run(test)


class Silent:
    """Says nothing more than that it has heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        self.heard.append(payload)


def sends(transport: ZeroMqTransport, patch: pytest.MonkeyPatch) -> list[frames.Bundle]:
    """The frames of each later message of the transport."""
    found: list[frames.Bundle] = []
    send = transport._sockets.send

    def watched(socket: Any, parts: Any) -> bool:
        found.append(frames.opened([bytes(part) for part in parts[socket is transport._router :]]))
        return send(socket, parts)

    patch.setattr(transport._sockets, "send", watched)
    return found


def lose_first(transport: ZeroMqTransport, patch: pytest.MonkeyPatch) -> None:
    """Drops the next message of the transport."""
    send, lost = transport._sockets.send, []

    def losing(socket: Any, parts: Any) -> bool:
        lost.append(parts)
        return send(socket, parts) if len(lost) > 1 else False

    patch.setattr(transport._sockets, "send", losing)


def posting(transport: Transport, payload: Any, waiting: Waiting) -> asyncio.Future[Any]:
    size = getattr(payload, "nbytes", 0)

    def post(then: Then) -> None:
        transport.post(HERE, THERE, "rows", payload, num_bytes=size, order=(), waiting=waiting, then=then)

    return asyncio.ensure_future(delivered(post))


def test_what_nobody_waits_for_travels_with_what_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "HELD_SECONDS", 60.0)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            other.register(THERE, silent)
            asked, answered = sends(one, monkeypatch), sends(other, monkeypatch)
            held = [posting(one, place, "nobody") for place in range(2)]
            await asyncio.sleep(0.05)
            assert not asked
            await posting(one, 2, "sender")
            await asyncio.gather(*held)  # acknowledged with it, though nobody hurries
            assert silent.heard == [0, 1, 2]
            assert [len(bundle.messages) for bundle in asked] == [3]
            assert [len(bundle.acknowledged) for bundle in answered] == [3]

    run(test)


def test_what_is_large_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "HELD_SECONDS", 60.0)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            other.register(THERE, silent)
            large = posting(one, np.zeros(frames.COPIED_BYTES, np.uint8), "nobody")
            while not silent.heard:
                await asyncio.sleep(0.001)
            await posting(one, 1, "sender")
            await large

    run(test)


@pytest.mark.parametrize("waiting", ["nobody", "receiver"])
def test_what_is_held_back_goes_by_itself_in_the_end(waiting: Waiting) -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            other.register(THERE, silent)
            await asyncio.gather(*(posting(one, place, waiting) for place in range(3)))
            assert silent.heard == [0, 1, 2]

    run(test)


def test_acknowledgements_travel_with_requests_to_who_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            one.register(HERE, silent)
            other.register(THERE, silent)
            other.connect({HERE: one.endpoint})
            await ask(one, 0)  # by which the other learns the name of this one's socket
            monkeypatch.setattr(zeromq, "HELD_SECONDS", 60.0)
            await asyncio.sleep(0.01)
            answered = sends(other, monkeypatch)
            first = posting(one, 1, "receiver")
            while silent.heard[-1] != 1:
                await asyncio.sleep(0.001)
            assert not answered
            await other.request(THERE, HERE, "rows", 2, num_bytes=0, order=())
            await first
            assert [(len(bundle.messages), len(bundle.acknowledged)) for bundle in answered] == [(1, 1)]

    run(test)


def test_a_lost_acknowledgement_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "ASK_AGAIN_SECONDS", 0.01)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            other.register(THERE, silent)
            lose_first(other, monkeypatch)
            await ask(one, 1)
            assert silent.heard == [1]

    run(test)


@pytest.mark.parametrize("waiting", ["nobody", "receiver", "sender"])
def test_posts_of_one_turn_travel_in_one_bundle(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent = Silent()
            other.register(THERE, silent)
            asked = sends(one, monkeypatch)
            await asyncio.gather(*(posting(one, np.full(place, place), waiting) for place in range(4)))
            assert [len(found) for found in silent.heard] == [0, 1, 2, 3]
            assert [len(bundle.messages) for bundle in asked] == [4]
            assert one.sent["rows"].messages == 4

    run(test)


def test_a_post_that_waits_delays_no_other() -> None:
    class Waits(Silent):
        async def handle(self, kind: str, payload: Any, sender: Address) -> None:
            if payload == "waits":
                await may.wait()
            self.heard.append(payload)

    may = asyncio.Event()

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            waits = Waits()
            other.register(THERE, waits)
            waiting, going_on = (posting(one, payload, "sender") for payload in ("waits", "goes on"))
            await going_on
            assert waits.heard == ["goes on"]
            assert not waiting.done()
            may.set()
            await waiting
            assert waits.heard == ["goes on", "waits"]

    run(test)


def test_a_lost_letter_is_sent_again_and_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "ASK_AGAIN_SECONDS", 0.01)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            silent, told = Silent(), list[Any]()
            other.register(THERE, silent)
            lose_first(one, monkeypatch)
            for place in range(2):
                options: Any = {"num_bytes": 0, "order": (), "waiting": "sender"}
                one.post(HERE, THERE, "rows", place, **options, then=lambda *what: told.append(what))
            while len(told) < 2:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert silent.heard[:2] == [0, 1]
            assert [error for _, error in told] == [None, None]

    run(test)


def test_an_acknowledgement_says_for_how_long_it_was_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "HELD_SECONDS", 0.05)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, _):
            other.register(THERE, Silent())
            told: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            options: Any = {"num_bytes": 0, "order": (), "waiting": "receiver"}
            one.post(HERE, THERE, "rows", 1, **options, then=lambda ago, _: told.set_result(ago))
            begin = clock.now()
            assert 0.04 < await told <= clock.now() - begin

    run(test)


def test_a_post_to_this_process_is_a_call() -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (_, other, echo):
            await posting(other, 1, "nobody")
            assert echo.asked == [("rows", HERE)]
            echo.may.clear()
            later = posting(other, 2, "nobody")
            await asyncio.sleep(0.01)
            assert not later.done()
            echo.may.set()
            await later

            def post(then: Then) -> None:
                other.post(THERE, HERE, "rows", 1, num_bytes=0, order=(), waiting="sender", then=then)

            with pytest.raises(LookupError, match="nobody is registered as graph server 0 to answer 'rows'"):
                await delivered(post)

    run(test)


def test_answers_come_the_same_way_as_requests_where_both_sides_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, echo):
            one.register(HERE, echo)
            other.connect({HERE: one.endpoint})
            await ask(one, 0)
            answered = sends(other, monkeypatch)
            mine = asyncio.ensure_future(ask(one, "mine"))
            theirs = asyncio.ensure_future(other.request(THERE, HERE, "rows", "theirs", num_bytes=0, order=()))
            assert (await mine)[0] == "mine"
            assert (await theirs)[0] == "theirs"
            assert all(bundle.messages for bundle in answered)
            assert sum(len(bundle.messages) for bundle in answered) == 2

    run(test)


def test_other_generations_are_not_answered_but_by_whole_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "ASK_AGAIN_SECONDS", 0.01)
    process = Address("process", 1)

    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, echo):
            other.register(process, echo)
            other.renew(1)
            one.connect({THERE: other.endpoint, process: other.endpoint})
            assert (one.generation, other.generation) == (-1, 1)
            left = asyncio.ensure_future(ask(one, "of before"))
            assert await one.request(HERE, process, "beat", 1, num_bytes=0, order=()) == [1, "beat"]
            await asyncio.sleep(0.05)  # it is asked again and again
            assert not left.done()
            assert echo.asked == [("beat", HERE)]
            one.renew(1)
            left.cancel()
            other.register(THERE, echo)
            one.connect({THERE: other.endpoint})
            assert await ask(one, "now") == ["now", "rows"]

    run(test)


def test_a_new_generation_forgets_what_the_last_one_had_asked_and_was_asked() -> None:
    async def test(clock: RealClock) -> None:
        async with two(clock) as (one, other, echo):
            echo.may.clear()
            asked = asyncio.ensure_future(ask(one, "of before"))
            while not echo.asked:
                await asyncio.sleep(0.001)
            for transport in (one, other):
                transport.renew(0)
            echo.may.set()
            await asyncio.sleep(0.02)
            assert not asked.done()  # no answer can come
            asked.cancel()
            with pytest.raises(LookupError):
                await ask(one, "now")
            other.register(THERE, echo)
            one.connect({THERE: other.endpoint})
            assert await ask(one, "now") == ["now", "rows"]

    run(test)


def test_who_is_there_no_longer_is_hung_up_on() -> None:
    keys = RunKeys.make()

    async def test(clock: RealClock) -> None:
        async with two(clock, keys=keys) as (one, _, echo):
            assert await ask(one, "now") == ["now", "rows"]
            third = ZeroMqTransport(keys, "ipc", codec=CODEC, spawn=clock.spawn)
            try:
                third.register(THERE, echo)
                one.renew(0)
                third.renew(0)
                third.register(THERE, echo)
                one.connect({THERE: third.endpoint})
                assert await ask(one, "there") == ["there", "rows"]
                assert len(one._sockets._readers) == 4  # its door, its router with a monitor, and one peer
            finally:
                third.close()

    run(test)
