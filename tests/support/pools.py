"""What tests of pools of sandboxes share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.wire.event import Answer

LONG = 120.0
"""Seconds that nothing here takes."""

Pools = Callable[..., Pool]


def invoke(pool: Pool, event: bytes, timeout: float = LONG) -> Answer:
    return Answer.decode(asyncio.run(pool.invoke(event, timeout)))


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
