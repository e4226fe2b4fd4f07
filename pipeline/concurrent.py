"""Concurrent waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def all_of(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Return all results in order. A single awaitable is awaited without a new task."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    return list(await asyncio.gather(*awaitables))
