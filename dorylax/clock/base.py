"""What coroutines may ask of a clock: the time, sleep, and workers that compute; and how a clock runs them.

`dorylax.clock.real` and `dorylax.clock.virtual` are the two clocks; `dorylax.clock.task_loop` drives tasks, finds failures
and closes loops.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, final

from dorylax.clock.duration import Duration
from dorylax.errors import DorylaxError

T = TypeVar("T")

_NAMED = 12  # tasks that a DeadlockError's text names


@final
@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """What a worker computed, and when.

    Attributes:
        value: what the work returned.
        start, end: when the worker was busy with it, in seconds on the clock.
    """

    value: T
    start: float
    end: float


class Request(NamedTuple, Generic[T]):
    """Something for workers to do.

    Attributes:
        work, seconds, order, effort: as of `Workers.run`.
    """

    work: Callable[[], T]
    seconds: Duration
    order: tuple[int, ...]
    effort: int | None = None


@final
class DeadlockError(DorylaxError, RuntimeError):
    """Every task waits and nothing will ever happen. Only the virtual clock can know that.

    Attributes:
        tasks: the names of the tasks that wait, sorted.
    """

    def __init__(self, tasks: Iterable[str]) -> None:
        self.tasks = tuple(sorted(tasks))
        more = len(self.tasks) - _NAMED
        named = ", ".join(self.tasks[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        super().__init__(f"every task waits and no event is left on the virtual clock: {named}")


class Workers(ABC):
    """A bounded number of workers (graph threads, tensor workers), each doing one thing at a time.

    Requests are served first come, first served.
    """

    name: str
    slots: int

    @abstractmethod
    async def run(
        self, work: Callable[[], T], *, seconds: Duration, order: tuple[int, ...], effort: int | None = None
    ) -> Timed[T]:
        """Does `work` as soon as a worker is free.

        Cancelling the awaiting task gives up its place in the queue. Work that has begun in a thread finishes, and keeps
        its worker until then, but its result is lost.

        Args:
            work: what to compute.
            seconds: how long it takes on the virtual clock, ≥ 0, or what it takes of what is shared there; the real clock
                takes as long as it takes.
            order: who goes first on the virtual clock where two things end at the same time: the smaller tuple.
            effort: operations and bytes that it takes, an estimate; None: nobody knows.

        Returns:
            The value of `work()` with its start and end.

        Raises:
            ValueError: `seconds` is negative or not finite.
            BaseException: whatever `work` raises; the worker is then free at once.
        """

    async def run_all(
        self, requests: Sequence[Request[T]], ended: Callable[[int, Timed[T] | None], None]
    ) -> list[Timed[T]]:
        """Does several things, each as soon as a worker is free, in this order.

        Args:
            requests: what to do.
            ended: told of each when it is over: which it was, and what came of it; None where it failed or was given up.

        Returns:
            What came of each, in their order.

        Raises:
            ValueError, BaseException: as `run`, the first.
        """

        async def one(place: int, request: Request[T]) -> Timed[T]:
            found: Timed[T] | None = None
            try:
                found = await self.run(
                    request.work, seconds=request.seconds, order=request.order, effort=request.effort
                )
                return found
            finally:
                ended(place, found)

        return list(await asyncio.gather(*(one(place, request) for place, request in enumerate(requests))))

    @abstractmethod
    async def end(self) -> None:
        """Ends them, once they have done what they have begun; what waits for one of them has been cancelled."""


class Clock(ABC):
    """Time, and an asyncio loop of its own on which tasks live in it.

    A clock may be used as a context manager, which closes it. It is not thread-safe: one thread at a time calls it.

    Attributes:
        kind: whether time is real or virtual.
    """

    kind: Literal["real", "virtual"]

    @abstractmethod
    def now(self) -> float:
        """Seconds on this clock."""

    @abstractmethod
    async def sleep(self, seconds: Duration, order: tuple[int, ...]) -> None:
        """Waits.

        Args:
            seconds: how long, ≥ 0; on the virtual clock also what is taken meanwhile of what is shared.
            order: who goes first on the virtual clock where two things happen at the same time: the smaller tuple.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """

    def after(self, seconds: Duration, order: tuple[int, ...], call: Callable[[], object], *, name: str) -> None:
        """Calls something later, on the loop; what it raises stops the run. Closing the clock before gives it up.

        Args:
            seconds: how much later; as of `sleep`.
            order: likewise.
            call: what to call.
            name: of what waits, in errors.

        Raises:
            ValueError: `seconds` is negative or not finite.
            RuntimeError: the clock is closed.
        """

        async def wait() -> None:
            await self.sleep(seconds, order)
            call()

        self.spawn(wait(), name=name)

    @abstractmethod
    def workers(self, name: str, slots: int) -> Workers:
        """New workers; `close` ends them.

        Args:
            name: their name, for threads and errors.
            slots: how many there are.

        Raises:
            ValueError: fewer than 1 slot.
        """

    @abstractmethod
    def run(self, awaitable: Awaitable[T]) -> T:
        """Lets all tasks of this clock run until `awaitable` is done; the others then stay where they are.

        Works where the calling thread already runs an asyncio loop, as in a notebook: the clock's loop then runs in
        another thread, for which the caller waits.

        Args:
            awaitable: a coroutine, or a task or future of this clock.

        Returns:
            The result of `awaitable`.

        Raises:
            BaseException: whatever `awaitable` raises.
            Exception: the first exception that ends a task made by `spawn`, as soon as it happens, even if another task
                awaits that one; or one that asyncio would only have logged. The coroutine given is then cancelled.
            DeadlockError: on the virtual clock, nothing will ever happen again.
            RuntimeError: the clock is closed, or this is called from one of its own tasks.
        """

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Makes a task, which starts in the next (or the present) `run`.

        Args:
            coroutine: what it does.
            name: its name in errors.

        Raises:
            RuntimeError: the clock is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancels all tasks and waits for them, ends the workers, closes the loop. A second call does nothing.

        Raises:
            Exception: the first that a task raised instead of ending when it was cancelled; everything is closed anyway.
            RuntimeError: this is called from one of the clock's own tasks.
        """

    def __enter__(self) -> Clock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_slots(name: str, slots: int) -> None:
    """Refuses workers that could never work, with a ValueError."""
    if slots < 1:
        raise ValueError(f"workers {name!r} need at least 1 slot, got {slots}")
