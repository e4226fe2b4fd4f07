"""Repeats requests until they are answered."""

from __future__ import annotations

import contextlib
from typing import Any

from dorylax.pipeline.transport.base import Address, Then, Transport

ATTEMPTS = 8


async def deliver(
    transport: Transport,
    sender: Address,
    receiver: Address,
    kind: str,
    payload: Any,
    *,
    num_bytes: int,
    order: tuple[int, ...],
) -> Any:
    """Send a request, up to `ATTEMPTS` times if its delivery is uncertain; arguments as for `Transport.request`.

    The transport waits between attempts.

    Raises:
        ConnectionError: No attempt was answered.
    """
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(ConnectionError):
            return await transport.request(sender, receiver, kind, payload, num_bytes=num_bytes, order=order)
    return await transport.request(sender, receiver, kind, payload, num_bytes=num_bytes, order=order)


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
    """Send a post as a request; arguments as for `Transport.post`."""
    try:
        await deliver(transport, sender, receiver, kind, payload, num_bytes=num_bytes, order=order)
    except Exception as error:
        then(0.0, error)
        raise
    then(0.0, None)
