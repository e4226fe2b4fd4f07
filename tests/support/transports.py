"""Parts of transports: posts as requests, and repeats of lost ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from dorylax.pipeline.transport.base import Address, Then, Transport


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


async def posted(
    transport: Transport,
    sender: Address,
    receiver: Address,
    kind: str,
    payload: Any,
    *,
    num_bytes: int,
    order: tuple[int, ...],
    then: Then,
) -> None:
    """Sends a post as a request."""
    try:
        await transport.request(sender, receiver, kind, payload, num_bytes=num_bytes, order=order)
    except Exception as error:
        then(0.0, error)
        raise
    then(0.0, None)


async def until_delivered(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What the first attempt returns that is not lost."""
    while True:
        with contextlib.suppress(ConnectionError):
            return await attempt()
