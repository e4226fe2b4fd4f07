from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dorylax.pipeline.transport import Address, RequestHandler
from dorylax.pipeline.transport.delivery import ATTEMPTS, deliver


class Flaky:
    """Loses the first few requests."""

    def __init__(self, lost: int) -> None:
        self.lost, self.asked = lost, list[Any]()

    def register(self, address: Address, handler: RequestHandler) -> None:
        raise NotImplementedError

    async def request(
        self, sender: Address, receiver: Address, kind: str, payload: Any, *, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        self.asked.append((sender, receiver, kind, payload, num_bytes, order))
        if len(self.asked) <= self.lost:
            raise ConnectionError("lost")
        return "reply"


HERE, THERE = Address("graph", 0), Address("parameter", 1)


def ask(transport: Flaky) -> Any:
    return asyncio.run(deliver(transport, HERE, THERE, "pull", (1, 2), num_bytes=3, order=(4, 5)))


def test_the_same_request_is_made_until_it_is_answered() -> None:
    transport = Flaky(ATTEMPTS - 1)
    assert ask(transport) == "reply"
    assert transport.asked == [(HERE, THERE, "pull", (1, 2), 3, (4, 5))] * ATTEMPTS


def test_it_gives_up_in_the_end() -> None:
    transport = Flaky(ATTEMPTS)
    with pytest.raises(ConnectionError, match="lost"):
        ask(transport)
    assert len(transport.asked) == ATTEMPTS
