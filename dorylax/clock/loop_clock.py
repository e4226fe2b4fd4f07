"""Clocks on an asyncio loop that runs until an awaitable is done, or until the first failure."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from dorylax.clock.base import Clock

T = TypeVar("T")


class LoopClock(Clock):
    """Base class of clocks that own a loop and its tasks.

    Args:
        loop: A new loop, closed by `close`.
        initializer: Called first in a thread that runs the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, initializer: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._initializer = initializer
        self._spawned: set[asyncio.Task[Any]] = set()  # asyncio itself keeps tasks by weak references only
        self._failure: BaseException | None = None
        self._closed = False
        loop.set_exception_handler(self._unhandled)

    def run(self, awaitable: Awaitable[T]) -> T:
        """See `Clock.run`."""
        if refused := self._refusal("run"):
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise refused
        return self._beside_a_running_loop(lambda: self._run(awaitable))

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """See `Clock.spawn`."""
        if self._closed:
            coroutine.close()
            raise RuntimeError("the clock is closed, no task can be spawned on it")
        task = self._loop.create_task(coroutine, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        task.add_done_callback(self._note_failure)
        return task

    def close(self) -> None:
        """See `Clock.close`."""
        if self._closed:
            return
        if refused := self._refusal("closed"):
            raise refused
        self._closed = True
        self._beside_a_running_loop(self._close)

    @abstractmethod
    def _end_workers(self) -> None:
        """End the workers, once no task is left."""

    def _unless_closing(self, call: Callable[[], object]) -> None:
        if not self._closed:
            call()

    def _run(self, awaitable: Awaitable[T]) -> T:
        main: asyncio.Future[T] = asyncio.ensure_future(awaitable, loop=self._loop)
        try:
            self._until_done(main)
        except BaseException:
            self._abandon(main, awaitable)
            raise
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._abandon(main, awaitable)
            raise failure
        return main.result()

    def _abandon(self, main: asyncio.Future[T], awaitable: Awaitable[T]) -> None:
        """Drop the result of `main`."""
        if main.done():
            if not main.cancelled():
                main.exception()  # or asyncio would log it as never retrieved
        elif main is not awaitable:
            main.cancel()

    def _until_done(self, future: asyncio.Future[Any]) -> None:
        """Run the loop until `future` is done or, unless closing, a task has failed."""
        future.add_done_callback(self._stop)
        try:
            while not future.done() and (self._closed or self._failure is None):
                self._loop.run_forever()
        finally:
            future.remove_done_callback(self._stop)

    def _close(self) -> None:
        try:
            # Clean-up may make further tasks.
            while tasks := sorted(asyncio.all_tasks(self._loop), key=asyncio.Task.get_name):
                for task in tasks:
                    task.cancel()
                self._until_done(asyncio.gather(*tasks, return_exceptions=True))
                for task in tasks:
                    self._note_failure(task)
            self._until_done(self._loop.create_task(self._loop.shutdown_asyncgens()))
        finally:
            self._end_workers()
            self._loop.close()
        if self._failure is not None:
            raise self._failure

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        # KeyboardInterrupt and SystemExit have already left the loop.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Fail on errors that asyncio would only log: those of callbacks, and of tasks without awaiting tasks."""
        if loop.is_closed():
            loop.default_exception_handler(context)
        else:
            self._fail(context.get("exception") or RuntimeError(context["message"]))

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stop()

    def _stop(self, _: object = None) -> None:
        self._loop.stop()

    def _beside_a_running_loop(self, drive: Callable[[], T]) -> T:
        """Call `drive`, in another thread if this one runs a loop already: asyncio allows one per thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return drive()
        driven: Future[T] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="clock", initializer=self._initializer) as pool:
            try:
                driven = pool.submit(drive)
                return driven.result()
            except BaseException as error:  # Ctrl-C may also come within `submit`, when `drive` has already begun
                if not (driven and driven.done()) and not self._closed:
                    self._failure = error
                    self._loop.call_soon_threadsafe(self._loop.stop)
                raise

    def _refusal(self, verb: str) -> RuntimeError | None:
        if self._loop.is_running():
            return RuntimeError(f"a clock cannot be {verb} from one of its own tasks: await instead")
        return RuntimeError("the clock is closed, nothing can run on it") if self._closed else None
