"""`LocalWorkers`: a number of worker processes that take events one after the other.

Each worker has a thread here that starts it, hands it events and waits for its answers, and does nothing else. A worker that
died, or took too long and was killed, is replaced when the next event needs one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple, final

import jax

from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.local.environment import worker_environment
from dorylax.serverless.backends.local.process import WorkerProcess
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_START_SECONDS = 120.0
"""That a worker may take to start, besides its cold start: 1 to 2 where nothing else runs."""

_GRACE_SECONDS = 2.0
"""Between asking all workers to end and killing them."""

_JAX_SETTINGS = ("jax_enable_x64",)


def jax_settings() -> dict[str, JaxSetting]:
    """The settings of JAX here without which workers could not load the stages; stages hold all others."""
    return {name: getattr(jax.config, name) for name in _JAX_SETTINGS}


@final
class LocalWorkers:
    """Calls the handler in processes of this machine; an `Invoker`.

    Args:
        keys: of the run.
        workers: how many processes, ≥ 1. They start when they are needed, or with `warm`.
        link: how slow the network of each is made; None: as fast as it is.
        cold_start_seconds: that each takes longer to start, ≥ 0.
        threads: of XLA in each, ≥ 1.
        settings: of JAX in each, by name; None: those that it has here (`jax_settings`).

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        keys: RunKeys,
        *,
        workers: int,
        link: Link | None = None,
        cold_start_seconds: float = 0.0,
        threads: int = 1,
        settings: Mapping[str, JaxSetting] | None = None,
    ) -> None:
        for name, value in (("workers", workers), ("threads", threads)):
            if value < 1:
                raise ValueError(f"{name} must be ≥ 1, got {value}")
        given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
        self._crew = _Crew(workers, given, threads)
        # Also when nobody closes it: at the end of the process, or when nobody has it any more.
        self._close = weakref.finalize(self, self._crew.close)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that run now."""
        return self._crew.pids()

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker`. Where all workers are busy, the event waits, first come first served.

        Cancelling it takes the event out of the queue; a worker that has begun goes on to its end, and its answer is
        dropped.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise InvokeError("refused", f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}")
        return await asyncio.wrap_future(self._crew.ask(event, timeout))

    async def warm(self) -> None:
        """Starts all workers that do not run, at once, and waits until they are ready.

        Raises:
            InvokeError: one could not be started.
        """
        await asyncio.gather(*map(asyncio.wrap_future, self._crew.start_all()))

    def close(self) -> None:
        """Ends all workers; events that wait are refused, those that run fail. A second call does nothing."""
        self._close()


class _Request(NamedTuple):
    """An event, or only that a worker be started."""

    event: bytes | None
    timeout: float
    answer: Future[bytes]


@final
class _Crew:
    """The threads and processes of a pool; knows nothing of it, so that it can be dropped."""

    def __init__(self, size: int, settings: SandboxSettings, threads: int) -> None:
        self._settings = settings.to_line()
        self._start_seconds = _START_SECONDS + settings.cold_start_seconds
        self._environment = worker_environment(os.environ, threads)
        self._size = size
        self._changed = threading.Condition()  # of all below
        self._requests: deque[_Request] = deque()  # for any worker
        self._own: list[deque[_Request]] = []  # for each one that there is
        self._threads: list[threading.Thread] = []
        self._open = 0  # requests without an answer
        self._closed = False
        # Of what is below; held while a process is made, which takes some milliseconds.
        self._starting = threading.Lock()
        self._processes: set[WorkerProcess] = set()
        self._owner = os.getpid()

    def pids(self) -> tuple[int, ...]:
        with self._starting:
            return tuple(sorted(process.pid for process in self._processes if process.alive))

    def ask(self, event: bytes, timeout: float) -> Future[bytes]:
        request = _Request(event, timeout, Future())
        with self._changed:
            self._refuse_if_closed()
            self._open += 1
            if self._open > len(self._threads) < self._size:
                self._hire()
            self._requests.append(request)
            self._changed.notify()
        return request.answer

    def start_all(self) -> list[Future[bytes]]:
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

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a fork: the workers are not its own, and threads that it has not may hold the locks
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

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise _closed()

    def _hire(self) -> None:
        own: deque[_Request] = deque()
        self._own.append(own)
        name = f"worker {len(self._threads)}"
        # As daemons: a process ends although somebody has forgotten to close.
        thread = threading.Thread(target=self._serve, args=(own,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, own: deque[_Request]) -> None:
        process: WorkerProcess | None = None
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

    def _answer(self, request: _Request, process: WorkerProcess | None) -> WorkerProcess | None:
        """Answers with this process or, where there is none, another; returns the one that is there then."""
        try:
            if process is not None and not process.alive:
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
        """To be called before an answer is seen: whoever asks again on it needs no other worker."""
        with self._changed:
            self._open -= 1

    def _start(self) -> WorkerProcess:
        with self._starting:
            # Looked at after the lock is taken: `close` takes it to see all processes that there will ever be.
            self._refuse_if_closed()
            process = WorkerProcess(self._settings, self._environment)
            self._processes.add(process)
            return process

    def _end(self, process: WorkerProcess) -> None:
        process.end()
        with self._starting:
            self._processes.discard(process)


def _closed() -> InvokeError:
    return InvokeError("refused", "the workers are closed: events must come before that")
