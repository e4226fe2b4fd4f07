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


@final
class Callers:
    """At most so many threads, started as they are needed. First come, first served.

    They are daemons, and nobody waits for them at the end of the process: a request to AWS cannot be called back, and may
    take a quarter of an hour.

    Args:
        most: how many threads, ≥ 1.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"calls at a time must be ≥ 1, got {most}")
        self._most = most
        self._changed = threading.Condition()  # of all below
        self._work: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._threads: list[threading.Thread] = []
        self._open = 0  # that have no result yet
        self._closed = False

    @property
    def most(self) -> int:
        """How many threads there may be."""
        return self._most

    def lower(self, most: int) -> None:
        """Starts no more than so many, ≥ 1, from now on."""
        with self._changed:
            self._most = min(self._most, max(1, most))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Has something done by the next thread that is free.

        Raises:
            InvokeError: it is closed, or the system starts no more threads.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise _closed()
            if self._open >= len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, name=f"call {len(self._threads)}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise InvokeError("refused", f"{error} for a call: lower tensor.workers") from None
                self._threads.append(thread)
            self._open += 1
            self._work.append((work, future))
            self._changed.notify()
        return future

    def close(self, seconds: float) -> None:
        """Refuses what waits, and gives what runs some seconds to end."""
        with self._changed:
            self._closed = True
            left = list(self._work)
            self._work.clear()
            self._changed.notify_all()
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(_closed())
        end = time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _serve(self) -> None:
        while (item := self._next()) is not None:
            self._do(*item)
            del item  # an idle thread keeps nobody's event

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._work)
            return self._work.popleft() if self._work else None

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


def _closed() -> InvokeError:
    return InvokeError("refused", "the functions are closed: events must come before that")
