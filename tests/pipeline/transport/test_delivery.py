from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.transports import LossyTransport

from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.delivery import ATTEMPTS, Window, deliver, posted

HERE, THERE = Address("graph", 0), Address("parameter", 1)


def ask(transport: LossyTransport) -> Any:
    return asyncio.run(deliver(transport, HERE, THERE, "pull", (1, 2), num_bytes=3, order=(4, 5)))


def test_the_same_request_is_made_until_it_is_answered() -> None:
    assert ATTEMPTS > 1
    transport = LossyTransport("reply", lost=ATTEMPTS - 1)
    assert ask(transport) == "reply"
    assert transport.asked == [(HERE, THERE, "pull", (1, 2), 3, (4, 5))] * ATTEMPTS


def test_it_gives_up_in_the_end() -> None:
    transport = LossyTransport("reply", lost=ATTEMPTS)
    with pytest.raises(ConnectionError, match="lost"):
        ask(transport)
    assert len(transport.asked) == ATTEMPTS


def test_a_post_is_a_request_that_tells_what_has_become_of_it() -> None:
    told = list[Any]()

    def post(transport: LossyTransport) -> None:
        options: Any = {"num_bytes": 3, "order": (4, 5), "then": lambda *what: told.append(what)}
        asyncio.run(posted(transport, HERE, THERE, "push", (1, 2), **options))

    post(LossyTransport(None, lost=ATTEMPTS - 1))
    assert told == [(0.0, None)]
    with pytest.raises(ConnectionError, match="lost"):
        post(LossyTransport(None, lost=ATTEMPTS))
    assert isinstance(told[1][1], ConnectionError)


def test_no_more_is_on_its_way_than_fits_and_order_is_kept() -> None:
    async def main() -> None:
        window, gone, there = Window(10), [], [asyncio.Event() for _ in range(5)]

        async def send(number: int, num_bytes: int) -> None:
            await window.enter(num_bytes)
            gone.append(number)
            await there[number].wait()
            window.leave(num_bytes)

        async def now(*expected: int) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            assert gone == [*expected]

        tasks = [asyncio.create_task(send(number, size)) for number, size in enumerate((6, 4, 30, 1, 1))]
        await now(0, 1)
        there[0].set()
        await now(0, 1)  # the third is more than all: it goes alone, and nothing overtakes it
        there[1].set()
        await now(0, 1, 2)
        there[2].set()
        await now(0, 1, 2, 3, 4)
        for event in there:
            event.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
