from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.transports import LossyTransport

from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.delivery import ATTEMPTS, deliver, posted

HERE, THERE = Address("graph", 0), Address("parameter", 1)


def ask(transport: LossyTransport) -> Any:
    return asyncio.run(deliver(transport, HERE, THERE, "pull", (1, 2), num_bytes=3, order=(4, 5)))


def test_the_same_request_is_made_until_it_is_answered() -> None:
    transport = LossyTransport("reply", lost=ATTEMPTS - 1)
    assert ask(transport) == "reply"
    assert transport.asked == [(HERE, THERE, "pull", (1, 2), 3, (4, 5))] * ATTEMPTS


def test_several_lost_answers_in_a_row_do_no_harm() -> None:
    transport = LossyTransport("reply", lost=3)
    assert ask(transport) == "reply"
    assert len(transport.asked) == 4


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
