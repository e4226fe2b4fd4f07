"""Beginning a coroutine at once: one that need not wait is done without a task, and without a turn of the loop."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Begun(NamedTuple, Generic[T]):
    """A coroutine that was begun.

    Attributes:
        value: what it returned, if it did not wait.
        rest: what is left of it, and what it waits for; None where it is done.
    """

    value: T | None
    rest: tuple[Coroutine[Any, Any, T], Any] | None


_NOTHING: Begun[Any] = Begun(None, None)


def begin(coroutine: Coroutine[Any, Any, T]) -> Begun[T]:
    """Runs a coroutine until it first waits. Until then no task is the current one, so timeouts must not come before.

    Raises:
        BaseException: whatever it raises by then.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        return _NOTHING if end.value is None else Begun(end.value, None)
    return Begun(None, (coroutine, awaited))


async def finished(begun: Begun[T]) -> T | None:
    """What a coroutine returns in the end; to be awaited once."""
    return begun.value if begun.rest is None else await _resumed(*begun.rest)


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """`yield from coroutine`, of which the first value has been taken already."""
    while True:
        try:
            given = yield awaited
        except BaseException as error:  # cancelled, or what is awaited has failed: it is the coroutine's to see
            raised: BaseException | None = error
        else:
            raised = None
        try:
            awaited = coroutine.send(given) if raised is None else coroutine.throw(raised)
        except StopIteration as end:
            found: T = end.value
            return found
