"""The contract of clocks: time, sleep, workers, and the execution of coroutines.

`dorylax.clock.real` and `dorylax.clock.virtual` are the two clocks; `dorylax.clock.loop_clock` drives tasks, finds failures
and closes loops.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, final

from dorylax.clock.duration import Duration

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """The result of a worker, with its start and end on the clock, in seconds."""

    value: T
    start: float
    end: float


class Request(NamedTuple, Generic[T]):
    """A request to workers; attributes are the arguments of `Workers.run`."""

    work: Callable[[], T]
    seconds: Duration
    order: tuple[int, ...]
    effort: int | None = None


class Workers(ABC):
    """A bounded number of workers (graph threads, tensor workers), each doing one thing at a time.

    Requests are served first come, first served. A ValueError is raised if there is no slot.
    """

    def __init__(self, name: str, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"workers {name!r} need at least 1 slot, got {slots}")
        self.name, self.slots = name, slots

    @abstractmethod
    async def run(
        self, work: Callable[[], T], *, seconds: Duration, order: tuple[int, ...], effort: int | None = None
    ) -> Timed[T]:
        """Run `work` on the next free worker.

        Cancelling the awaiting task gives up its place in the queue. Work that has begun in a thread finishes, and keeps
        its worker until then, but its result is lost.

        Args:
            work: The computation.
            seconds: Duration on the virtual clock (≥ 0), or amounts of shared resources; unused on the real clock.
            order: Order of simultaneous events on the virtual clock, the smallest tuple first.
            effort: Estimated operations and bytes; None if unknown.

        Returns:
            The value of `work()` with its start and end.

        Raises:
            ValueError: `seconds` is negative or not finite.
            BaseException: An exception of `work`, which frees the worker.
        """

    async def run_all(
        self, requests: Sequence[Request[T]], ended: Callable[[int, Timed[T] | None], None]
    ) -> list[Timed[T]]:
        """Run several requests, each on the next free worker, in this order; return their results or raise the first error.

        `ended` is called at the end of each with its place and its result, or None if it failed or was cancelled.
        """

        async def one(place: int, request: Request[T]) -> Timed[T]:
            found: Timed[T] | None = None
            work, seconds, order, effort = request
            try:
                found = await self.run(work, seconds=seconds, order=order, effort=effort)
                return found
            finally:
                ended(place, found)

        return list(await asyncio.gather(*(one(place, request) for place, request in enumerate(requests))))

    @abstractmethod
    async def end(self) -> None:
        """End the workers after their current work; waiting requests have been cancelled."""


class Clock(ABC):
    """Time, and an asyncio loop whose tasks use this time.

    A clock may be used as a context manager, which closes it. It is not thread-safe: one thread at a time calls it.

    Attributes:
        kind: "real" or "virtual".
    """

    kind: Literal["real", "virtual"]

    @abstractmethod
    def now(self) -> float:
        """Time in seconds."""

    @abstractmethod
    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:
        """Sleep.

        Args:
            seconds: Duration (≥ 0); on the virtual clock also amounts of shared resources.
            order: Order of simultaneous events on the virtual clock, the smallest tuple first.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:
        """Call a function later, on the loop; its exceptions stop the run. Closing the clock cancels the call.

        Arguments and errors are those of `sleep`, and of `spawn` for the waiting task.
        """

        async def wait() -> None:
            await self.sleep(seconds, order)
            call()

        self.spawn(wait(), name=name)

    @abstractmethod
    def workers(self, name: str, slots: int) -> Workers:
        """Make `slots` ≥ 1 workers, which `close` ends; `name` is for threads and errors."""

    @abstractmethod
    def run(self, awaitable: Awaitable[T]) -> T:
        """Run all tasks of this clock until `awaitable` is done; the others are then suspended.

        Works where the calling thread already runs an asyncio loop, as in a notebook: the clock's loop then runs in
        another thread, for which the caller waits.

        Args:
            awaitable: A coroutine, or a task or future of this clock.

        Returns:
            The result of `awaitable`.

        Raises:
            BaseException: An exception of `awaitable`.
            Exception: The first exception that ends a task made by `spawn`, immediately, even if another task awaits that
                one; or one that asyncio would only have logged. `awaitable` is then cancelled.
            RunError: No event is left on the virtual clock.
            RuntimeError: The clock is closed, or the caller is one of its tasks.
        """

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Make a task, named in errors, which starts in the next (or the present) `run`.

        Raises:
            RuntimeError: The clock is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel all tasks and wait for them, end the workers, and close the loop, unless it is closed.

        Raises:
            Exception: The first exception of a cancelled task; everything is closed nevertheless.
            RuntimeError: The caller is a task of the clock.
        """

    def __enter__(self) -> Clock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
