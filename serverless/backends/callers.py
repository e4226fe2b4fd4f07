"""Threads that wait for answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, final

from dorylax.serverless.backends.base import InvokeError

T = TypeVar("T")
Request = tuple[Callable[[], Any], Future[Any]]


@final
class Callers:
    """A limited number of threads, started as they are needed. First come, first served.

    They are daemons: the process ends even if nobody has closed them, or if a call takes a quarter of an hour.

    Args:
        most: how many threads, ≥ 1.
        name: of what they call, for errors and for the names of threads.
    """

    def __init__(self, most: int, name: str) -> None:
        if most < 1:
            raise ValueError(f"calls at a time must be ≥ 1, got {most}")
        self._most, self._name = most, name
        self._changed = threading.Condition()  # of all below
        self._requests: deque[Request] = deque()  # for any thread
        self._queues: list[deque[Request]] = []  # of each thread
        self._threads: list[threading.Thread] = []
        self._open = 0  # requests without a result
        self._closed = False

    @property
    def most(self) -> int:
        """How many threads there may be."""
        return self._most

    def lower(self, most: int) -> None:
        """Lowers the number of threads that may be started from now on, to ≥ 1."""
        with self._changed:
            self._most = min(self._most, max(1, most))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Has the next free thread do something.

        Raises:
            InvokeError: it is closed, or the system starts no more threads.
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
        """Starts all threads, and has each of them do something.

        Raises:
            InvokeError: as `submit`.
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
        """Raises an InvokeError if it is closed."""
        if self._closed:
            raise self._refusal()

    def refuse(self) -> None:
        """Refuses what waits, and whatever comes from now on."""
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
        """Refuses what waits, and gives what runs some seconds to end; None: as long as it takes."""
        self.refuse()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():  # which may have dropped the last reference to the owner
                thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _start(self) -> None:
        queue: deque[Request] = deque()
        thread = threading.Thread(
            target=self._serve, args=(queue,), name=f"{self._name} {len(self._threads)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise InvokeError("refused", f"{error} for a call: lower tensor.workers") from None
        self._queues.append(queue)
        self._threads.append(thread)

    def _serve(self, queue: deque[Request]) -> None:
        while (request := self._next(queue)) is not None:
            self._do(*request)
            del request  # an idle thread keeps nobody's event

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
        except BaseException as error:  # it goes to whoever asked
            raised = error
        with self._changed:
            self._open -= 1  # before the result is seen: whoever submits again on it needs no other thread
        if not running:
            return
        if raised is None:
            future.set_result(result)
        else:
            future.set_exception(raised)

    def _refusal(self) -> InvokeError:
        return InvokeError("refused", f"{self._name} are closed: events must come before that")
