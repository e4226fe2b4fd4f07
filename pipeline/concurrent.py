"""Waiting for several things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def all_of(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """All results, in order; where there is one, without a task of its own."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    return list(await asyncio.gather(*awaitables))
