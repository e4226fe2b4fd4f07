"""A thread pool for blocking calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, final

from dorylax.net.errors import TaskFailedError

T = TypeVar("T")
Request = tuple[Callable[[], Any], Future[Any]]


@final
class Callers:
    """Up to `most` threads, started on demand, which serve requests in order.

    They are daemon threads, so that a process can end during long calls.

    Args:
        most: Limit of threads, ≥ 1.
        name: Name in errors and of threads.
    """

    def __init__(self, most: int, name: str) -> None:
        if most < 1:
            raise ValueError(f"calls at a time must be ≥ 1, got {most}")
        self._most, self._name = most, name
        self._changed = threading.Condition()  # guards the attributes below
        self._requests: deque[Request] = deque()  # requests for any thread
        self._queues: list[deque[Request]] = []  # requests for one thread each
        self._threads: list[threading.Thread] = []
        self._open = 0  # unfinished requests
        self._closed = False

    @property
    def most(self) -> int:
        """Limit of threads."""
        return self._most

    def lower(self, most: int) -> None:
        """Lower the limit of threads, ≥ 1, for later starts."""
        with self._changed:
            self._most = min(self._most, max(1, most))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a function in the next free thread.

        Raises:
            TaskFailedError: The pool is closed, or the system cannot start a thread.
        """
        future: Future[T] = Future()
        with self._changed:
            self.refuse_if_closed()
            if self._open >= len(self._threads) < self._most:
                self._start()
            self._open += 1
            self._requests.append((work, future))
            self._changed.notify()
        return future

    def submit_to_each(self, work: Callable[[], T]) -> list[Future[T]]:
        """Start all threads, and run a function in each.

        Raises:
            TaskFailedError: See `submit`.
        """
        with self._changed:
            self.refuse_if_closed()
            while len(self._threads) < self._most:
                self._start()
            futures: list[Future[T]] = [Future() for _ in self._threads]
            for queue, future in zip(self._queues, futures, strict=True):
                queue.append((work, future))
            self._open += len(futures)
            self._changed.notify_all()
        return futures

    def refuse_if_closed(self) -> None:
        """Raise TaskFailedError if the pool is closed."""
        if self._closed:
            raise self._refusal()

    def refuse(self) -> None:
        """Refuse queued and later requests."""
        with self._changed:
            self._closed = True
            left = [future for queue in (self._requests, *self._queues) for _, future in queue]
            for queue in (self._requests, *self._queues):
                queue.clear()
            self._changed.notify_all()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._refusal())

    def close(self, seconds: float | None = None) -> None:
        """Refuse queued requests, and wait `seconds` for running ones; None: without a limit."""
        self.refuse()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():  # the thread may have dropped the last reference to the owner
                thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _start(self) -> None:
        queue: deque[Request] = deque()
        thread = threading.Thread(
            target=self._serve, args=(queue,), name=f"{self._name} {len(self._threads)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise TaskFailedError(f"{error} for a call: lower tensor.workers", "refused") from None
        self._queues.append(queue)
        self._threads.append(thread)

    def _serve(self, queue: deque[Request]) -> None:
        while (request := self._next(queue)) is not None:
            self._do(*request)
            del request  # an idle thread keeps no event alive

    def _next(self, queue: deque[Request]) -> Request | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or queue or self._requests)
            if self._closed:
                return None
            return queue.popleft() if queue else self._requests.popleft()

    def _do(self, work: Callable[[], Any], future: Future[Any]) -> None:
        result, raised = None, None
        running = future.set_running_or_notify_cancel()
        try:
            if running:
                result = work()
        except BaseException as error:  # the future carries it to the caller
            raised = error
        with self._changed:
            self._open -= 1  # before the result is visible, so that a follow-up request reuses this thread
        if not running:
            return
        if raised is None:
            future.set_result(result)
        else:
            future.set_exception(raised)

    def _refusal(self) -> TaskFailedError:
        return TaskFailedError(f"{self._name} are closed: events must come before that", "refused")
