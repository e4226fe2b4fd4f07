from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.transports import LossyTransport

from dorylax.pipeline.transport import Address
from dorylax.pipeline.transport.delivery import ATTEMPTS, deliver

HERE, THERE = Address("graph", 0), Address("parameter", 1)


def ask(transport: LossyTransport) -> Any:
    return asyncio.run(deliver(transport, HERE, THERE, "pull", (1, 2), num_bytes=3, order=(4, 5)))


def test_the_same_request_is_made_until_it_is_answered() -> None:
    transport = LossyTransport("reply", lost=ATTEMPTS - 1)
    assert ask(transport) == "reply"
    assert transport.asked == [(HERE, THERE, "pull", (1, 2), 3, (4, 5))] * ATTEMPTS


def test_it_gives_up_in_the_end() -> None:
    transport = LossyTransport("reply", lost=ATTEMPTS)
    with pytest.raises(ConnectionError, match="lost"):
        ask(transport)
    assert len(transport.asked) == ATTEMPTS
