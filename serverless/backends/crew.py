"""Sandboxes in processes of this machine, each with a thread of its own; what such a process is, its kind says.

A thread starts its process, hands it events and waits for its answers, and does nothing else. A process that died, or took
too long and was ended, is replaced when the next event needs one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol, final, runtime_checkable

from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_GRACE_SECONDS = 2.0
"""Between asking all processes to end and killing them."""


@runtime_checkable
class Sandboxed(Protocol):
    """A process, or a few that belong together, in which the handler runs; it is starting, or waits for events.

    One thread starts it, asks and ends it; another may only `terminate`, `kill` or `wait`. Once a method has raised an
    InvokeError, it has ended.
    """

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def wait_ready(self, timeout: float) -> None:
        """Waits until events may come.

        Raises:
            InvokeError: it died, could not be set up, or took longer than `timeout` seconds.
        """
        ...

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Hands it an event and waits for the answer.

        Raises:
            InvokeError: it died, answered what is no answer, or took longer than `timeout` seconds.
        """
        ...

    def terminate(self) -> None:
        """Asks it to end."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def wait(self, timeout: float) -> bool:
        """Waits until it has ended; whether it has."""
        ...

    def end(self) -> None:
        """Ends it, if it has not, and gives back all that it held; a second call does nothing."""
        ...


def has_ended(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Waits until a process has ended; whether it has."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
        return True
    return False


class _Request(NamedTuple):
    """An event, or only that a process be started."""

    event: bytes | None
    timeout: float
    answer: Future[bytes]


@final
class Crew:
    """The threads and processes of a pool; knows nothing of it, so that it can be dropped.

    Args:
        size: how many processes, ≥ 1. They start when they are needed, or with `warm`.
        start: makes one; it may be starting for as long as `wait_ready` waits.
        start_seconds: that one may take to be ready.
    """

    def __init__(self, size: int, start: Callable[[], Sandboxed], start_seconds: float) -> None:
        self._size, self._make, self._start_seconds = size, start, start_seconds
        self._changed = threading.Condition()  # of all below
        self._requests: deque[_Request] = deque()  # for any process
        self._own: list[deque[_Request]] = []  # for each one that there is
        self._threads: list[threading.Thread] = []
        self._open = 0  # requests without an answer
        self._closed = False
        # Of what is below; held while a process is made, which takes some milliseconds.
        self._starting = threading.Lock()
        self._processes: set[Sandboxed] = set()
        self._owner = os.getpid()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of those that run now."""
        with self._starting:
            return tuple(sorted(process.pid for process in self._processes if process.is_alive()))

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker`. Where all are busy, the event waits, first come first served.

        Cancelling it takes the event out of the queue; a process that has begun goes on to its end, and its answer is
        dropped.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise InvokeError("refused", f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}")
        return await asyncio.wrap_future(self._ask(event, timeout))

    async def warm(self) -> None:
        """Starts all that do not run, at once, and waits until they are ready.

        Raises:
            InvokeError: one could not be started.
        """
        await asyncio.gather(*map(asyncio.wrap_future, self._start_all()))

    def close(self) -> None:
        """Ends all; events that wait are refused, those that run fail. A second call does nothing."""
        if os.getpid() != self._owner:
            return  # a fork: the processes are not its own, and threads that it has not may hold the locks
        with self._changed:
            self._closed = True
            left = [*self._requests, *(request for own in self._own for request in own)]
            self._requests.clear()
            for own in self._own:
                own.clear()
            self._changed.notify_all()
        for request in left:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(_closed())
        with self._starting:
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in processes:
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.kill()
        for thread in self._threads:
            if thread is not threading.current_thread():  # which may have dropped the last reference to the pool
                thread.join()

    def _ask(self, event: bytes, timeout: float) -> Future[bytes]:
        request = _Request(event, timeout, Future())
        with self._changed:
            self._refuse_if_closed()
            if self._open >= len(self._threads) < self._size:
                self._hire()
            self._open += 1
            self._requests.append(request)
            self._changed.notify()
        return request.answer

    def _start_all(self) -> list[Future[bytes]]:
        with self._changed:
            self._refuse_if_closed()
            while len(self._threads) < self._size:
                self._hire()
            requests = [_Request(None, 0.0, Future()) for _ in self._own]
            for own, request in zip(self._own, requests, strict=True):
                own.append(request)
            self._open += len(requests)
            self._changed.notify_all()
        return [request.answer for request in requests]

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise _closed()

    def _hire(self) -> None:
        own: deque[_Request] = deque()
        name = f"worker {len(self._threads)}"
        # As daemons: a process ends although somebody has forgotten to close.
        thread = threading.Thread(target=self._serve, args=(own,), name=name, daemon=True)
        thread.start()  # raises where the system has no more: then nothing has changed
        self._own.append(own)
        self._threads.append(thread)

    def _serve(self, own: deque[_Request]) -> None:
        process: Sandboxed | None = None
        while (request := self._next(own)) is not None:
            if request.answer.set_running_or_notify_cancel():
                process = self._answer(request, process)
            else:
                self._answered()
            del request  # an idle thread keeps nobody's event
        if process is not None:
            self._end(process)

    def _next(self, own: deque[_Request]) -> _Request | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or own or self._requests)
            if self._closed:
                return None
            return own.popleft() if own else self._requests.popleft()

    def _answer(self, request: _Request, process: Sandboxed | None) -> Sandboxed | None:
        """Answers with this process or, where there is none, another; returns the one that is there then."""
        try:
            if process is not None and not process.is_alive():
                self._end(process)
                process = None
            if process is None:
                process = self._start()
                process.wait_ready(self._start_seconds)
            answer = b"" if request.event is None else process.ask(request.event, request.timeout)
        except BaseException as error:  # it goes to whoever asked
            if process is not None:
                self._end(process)
            self._answered()
            request.answer.set_exception(error)
            return None
        self._answered()
        request.answer.set_result(answer)
        return process

    def _answered(self) -> None:
        """To be called before an answer is seen: whoever asks again on it needs no other process."""
        with self._changed:
            self._open -= 1

    def _start(self) -> Sandboxed:
        with self._starting:
            # Looked at after the lock is taken: `close` takes it to see all processes that there will ever be.
            self._refuse_if_closed()
            process = self._make()
            self._processes.add(process)
            return process

    def _end(self, process: Sandboxed) -> None:
        process.end()
        with self._starting:
            self._processes.discard(process)


def _closed() -> InvokeError:
    return InvokeError("refused", "the workers are closed: events must come before that")
