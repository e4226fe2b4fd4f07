"""A transport that writes down what is asked of it, and loses the first requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dorylax.pipeline.transport.base import Address, RequestHandler, Then, Waiting
from dorylax.pipeline.transport.delivery import posted


async def delivered(post: Callable[[Then], None]) -> None:
    """Posts something, and returns when it was delivered."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def then(_: float, error: Exception | None) -> None:
        if error is None:
            told.set_result(None)
        else:
            told.set_exception(error)

    post(then)
    await told


class LossyTransport:
    """Loses the first `lost` requests and answers all later ones with `reply`; all are in `asked`."""

    def __init__(self, reply: Any, lost: int = 0) -> None:
        self.reply, self.lost = reply, lost
        self.asked = list[Any]()
        self.posted = list[Any]()  # tasks

    def register(self, address: Address, handler: RequestHandler) -> None:
        raise NotImplementedError

    async def request(self, *message: Any, num_bytes: int, order: tuple[int, ...]) -> Any:
        self.asked.append((*message, num_bytes, order))
        if len(self.asked) <= self.lost:
            raise ConnectionError("lost")
        return self.reply

    def post(self, *message: Any, waiting: Waiting, **options: Any) -> None:
        self.posted.append(asyncio.ensure_future(posted(self, *message, **options)))
