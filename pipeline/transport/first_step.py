"""Runs a coroutine up to its first wait, so that one without waits needs neither a task nor a turn of the loop."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Begun(NamedTuple, Generic[T]):
    """A started coroutine.

    Attributes:
        value: Its result, if it finished without waiting.
        rest: The suspended coroutine and its awaited object; None if it finished.
    """

    value: T | None
    rest: tuple[Coroutine[Any, Any, T], Any] | None


_NOTHING: Begun[Any] = Begun(None, None)


def begin(coroutine: Coroutine[Any, Any, T]) -> Begun[T]:
    """Run a coroutine until its first wait. No task is current until then, so it must not use timeouts before.

    Raises:
        BaseException: The coroutine's own exception.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        return _NOTHING if end.value is None else Begun(end.value, None)
    return Begun(None, (coroutine, awaited))


async def finished(begun: Begun[T]) -> T | None:
    """Return the result of a started coroutine. Await it once."""
    return begun.value if begun.rest is None else await _resumed(*begun.rest)


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Continue `yield from coroutine` after its first value."""
    while True:
        try:
            given = yield awaited
        except BaseException as error:  # cancellation or failure of the awaited object belongs to the coroutine
            raised: BaseException | None = error
        else:
            raised = None
        try:
            awaited = coroutine.send(given) if raised is None else coroutine.throw(raised)
        except StopIteration as end:
            found: T = end.value
            return found


async def all_of(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Return all results in order. A single awaitable is awaited without a new task."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    return list(await asyncio.gather(*awaitables))
