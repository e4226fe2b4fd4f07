"""Faults between a pipeline and its workers, for tests: of calls, and of messages of the data plane. Seeded."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dorylax.net.errors import TaskFailedError
from dorylax.net.server import Endpoint
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.emulator import pool as emulator
from dorylax.serverless.backends.local import pool as local
from dorylax.serverless.wire.event import VERSION

Call = Callable[[bytes, float], Any]
Fault = Callable[["Faulty", bytes, float], Any]


class Faulty:
    """An invoker around another: each call may suffer a fault.

    Args:
        inner: calls the handler.
        faults: by name, what is done in place of the call.
        share: of the calls that suffer one.
        seed: which.

    Attributes:
        inner: as given.
        suffered: how many calls suffered which fault.
        answered: how many answers came, faults or not.
        seconds: of all calls that came to an answer.
    """

    def __init__(self, inner: Invoker, faults: dict[str, Fault], share: float, seed: int) -> None:
        self.inner = inner
        self.faults, self.share, self.random = faults, share, random.Random(seed)
        self.suffered = dict.fromkeys(faults, 0)
        self.answered, self.seconds = 0, 0.0
        self.changed = threading.Condition()
        self.last_event, self.last_answer = b"", b""
        self.waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        if not self.faults or self.random.random() >= self.share:
            return await self.call(event, timeout)
        name = _rarest(self.suffered, self.random)
        self.suffered[name] += 1
        answer: bytes = await self.faults[name](self, event, timeout)
        return answer

    async def call(self, event: bytes, timeout: float) -> bytes:
        """The call itself."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        answer = await self.inner.invoke(event, timeout)
        with self.changed:
            self.answered += 1
            self.seconds += loop.time() - begin
            self.changed.notify_all()
        self.last_event, self.last_answer = event, answer
        return answer

    @property
    def late(self) -> float:
        """20 times the seconds of a call, so far; no more than 20 times what one takes that compiles nothing."""
        return 20 * min(self.seconds / max(1, self.answered), 0.02)

    async def warm(self) -> None:
        await self.inner.warm()

    def close(self) -> None:
        self.inner.close()


def _rarest(suffered: dict[str, int], rng: random.Random) -> str:
    """One of those that were suffered least: all have their turn, in no order."""
    least = min(suffered.values())
    return rng.choice([name for name, count in suffered.items() if count == least])


# Faults of calls.


async def late_call(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """The event reaches its worker after 20 times what a call takes."""
    await asyncio.sleep(faulty.late)
    return await faulty.call(event, timeout)


async def late_answer(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """The answer comes after 20 times what a call takes; the results have long been put."""
    answer = await faulty.call(event, timeout)
    await asyncio.sleep(faulty.late)
    return answer


async def twice(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """Two workers compute the task and put its results at the same time."""
    first, second = await asyncio.gather(faulty.call(event, timeout), faulty.call(event, timeout))
    return faulty.random.choice([first, second])


async def twice_in_turn(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """The task is computed once more when its results are there."""
    await faulty.call(event, timeout)
    return await faulty.call(event, timeout)


async def replayed(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """An event of the past comes again, besides this one."""
    if faulty.last_event:
        await faulty.call(faulty.last_event, timeout)
    return await faulty.call(event, timeout)


async def dropped_event(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    raise TaskFailedError("the event was lost", "timeout")


async def dropped_answer(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """The results are put, and nobody hears of it."""
    await faulty.call(event, timeout)
    raise TaskFailedError("the answer was lost", "died")


async def cut_off(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    answer = await faulty.call(event, timeout)
    return answer[: faulty.random.randrange(len(answer))]


async def garbage(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    await faulty.call(event, timeout)
    return faulty.random.randbytes(300)


async def _changed(faulty: Faulty, event: bytes, timeout: float, **fields: Any) -> bytes:
    """The answer with other values of some fields."""
    return json.dumps({**json.loads(await faulty.call(event, timeout)), **fields}).encode()


async def of_another_task(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """Answers in another order: this call gets the last one's, and nobody gets this one's."""
    before = faulty.last_answer
    answer = await faulty.call(event, timeout)
    return before or answer


async def corrupted(faulty: Faulty, event: bytes, timeout: float) -> bytes:
    """The event arrives with a byte changed, and is called again when the worker has refused it."""
    damaged = bytearray(event)
    damaged[faulty.random.randrange(40)] ^= 1 << faulty.random.randrange(8)  # its beginning: format and version
    return await faulty.call(bytes(damaged), timeout)


CALL_FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        *(late_call, late_answer, twice, twice_in_turn, replayed, dropped_event, dropped_answer, cut_off, garbage),
        *(of_another_task, corrupted),
    )
}
CALL_FAULTS |= {
    "another_version": functools.partial(_changed, version=VERSION + 1),
    "of_another_run": functools.partial(_changed, run="ab"),
    "of_another_attempt": functools.partial(_changed, attempt=9),
    "lies": functools.partial(_changed, error="no", retry=True),  # the worker could, and says that it could not
}


def wrap_workers(
    patch: pytest.MonkeyPatch, faults: dict[str, Fault], *, share: float = 0.0, seed: int = 0
) -> list[Faulty]:
    """Puts faults around the workers of pipelines that are started from now on; the list will hold them."""
    made: list[Faulty] = []

    def wrap(original: Callable[..., Invoker]) -> Callable[..., Faulty]:
        def make(*args: Any, **options: Any) -> Faulty:
            made.append(Faulty(original(*args, **options), faults, share, seed))
            return made[-1]

        return make

    patch.setattr(local, "local_workers", wrap(local.local_workers))
    patch.setattr(emulator, "emulated_functions", wrap(emulator.emulated_functions))
    return made


# Faults of messages.


class Tampering:
    """What happens to messages at the servers' door.

    Args:
        share: of the messages that suffer something.
        seed: which, and what.
        most_dropped: messages that are lost; each costs the worker that waits its life.

    Attributes:
        suffered: how many suffered what.
    """

    def __init__(self, share: float, seed: int, most_dropped: int) -> None:
        self._share, self._random, self._most_dropped = share, random.Random(seed), most_dropped
        self.suffered = dict.fromkeys(("twice", "dropped", "answer dropped"), 0)

    def handle(self, original: Callable[..., list[Any]], end: Endpoint, message: Sequence[Any]) -> list[Any]:
        if self._random.random() >= self._share:
            return original(end, message)
        most = {"dropped": self._most_dropped, "answer dropped": self._most_dropped}
        kind = _rarest({k: n for k, n in self.suffered.items() if n < most.get(k, n + 1)}, self._random)
        self.suffered[kind] += 1
        if kind == "dropped":
            return []
        replies = original(end, message)
        return [*replies, *original(end, message)] if kind == "twice" else []


def tamper(patch: pytest.MonkeyPatch, *, share: float, seed: int = 0, most_dropped: int = 3) -> Tampering:
    """Tampers with all messages of servers that are made from now on."""
    tampering, original = Tampering(share, seed, most_dropped), Endpoint.handle

    def handle(end: Endpoint, message: Sequence[Any]) -> list[Any]:
        return tampering.handle(original, end, message)

    patch.setattr(Endpoint, "handle", handle)
    return tampering
