"""Sandboxes in processes, each with a thread of this one that starts it and waits for its answers.

A process that died, or was ended because it took too long, is replaced when the next event needs one. What such a process
is, and where, depends on its kind (`local`, `emulator`, `ray`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol, final, runtime_checkable

from dorylax.forking import Forked
from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.callers import Callers
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_GRACE_SECONDS = 2.0
"""Between asking all processes to end and killing them."""


@runtime_checkable
class Sandboxed(Protocol):
    """A process, or a few that belong together, in which the handler runs: starting, or waiting for events.

    One thread starts it, asks and ends it; another may `terminate`, `kill` or `wait`, and `end` it once that thread has
    ended. Once a method has raised an InvokeError, it has ended.
    """

    @property
    def pid(self) -> int:
        """Its process id, on its machine."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def wait_ready(self, timeout: float) -> None:
        """Waits until events may come.

        Raises:
            InvokeError: it died, could not be set up, or took longer than `timeout` seconds from when it had a place.
        """
        ...

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Hands it an event and waits for the answer.

        Raises:
            InvokeError: it died, gave no valid answer, or took longer than `timeout` seconds.
        """
        ...

    def terminate(self) -> None:
        """Asks it to end."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def wait(self, timeout: float) -> bool:
        """Waits until it has ended; says whether it has."""
        ...

    def end(self) -> None:
        """Ends it, if it has not ended, and frees all that it held; a second call does nothing."""
        ...


def has_ended(process: subprocess.Popen[bytes] | Forked, timeout: float) -> bool:
    """Waits until a process has ended; says whether it has."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
        return True
    return False


@final
class ProcessSlots:
    """The processes of a pool, one for each thread; knows nothing of the pool, so that it can be dropped.

    Args:
        size: how many processes, ≥ 1. They start when they are needed, or with `warm`.
        start: makes one; it may be starting for as long as `wait_ready` waits.
        start_seconds: how long one may take to be ready.
        closed: called once all have been ended.
    """

    def __init__(
        self, size: int, start: Callable[[], Sandboxed], start_seconds: float, closed: Callable[[], None]
    ) -> None:
        self._make, self._start_seconds, self._closed = start, start_seconds, closed
        self._callers = Callers(size, "the workers")
        self._of_thread = threading.local()  # its process
        self._starting = threading.Lock()  # of the set below; held while a process is made, for some milliseconds
        self._processes: set[Sandboxed] = set()
        self._owner = os.getpid()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of those that run now."""
        with self._starting:
            return tuple(sorted(process.pid for process in self._processes if process.is_alive()))

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker`. Where all are busy, the event waits, first come first served.

        Cancelling it takes the event out of the queue; a process that has begun finishes, and its answer is dropped.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise InvokeError("refused", f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}")
        return await asyncio.wrap_future(self._callers.submit(lambda: self._ask(event, timeout)))

    async def warm(self) -> None:
        """Starts all that do not run, side by side, and waits until they are ready.

        Raises:
            InvokeError: one could not be started.
        """
        await asyncio.gather(*map(asyncio.wrap_future, self._callers.submit_to_each(lambda: self._ask(None, 0.0))))

    def close(self) -> None:
        """Ends all; events that wait are refused, those that run fail. A second call does nothing."""
        if os.getpid() != self._owner:
            return  # a fork: the processes are not its own, and threads that it does not have may hold the locks
        self._callers.refuse()
        with self._starting:
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in processes:
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.kill()
        self._callers.close()
        for process in processes:  # whose threads have ended, or are this one
            self._end(process)
        self._closed()

    def _ask(self, event: bytes | None, timeout: float) -> bytes:
        """Has this thread's process answer, or a new one where it has ended; without an event, only starts it."""
        process: Sandboxed | None = getattr(self._of_thread, "process", None)
        self._of_thread.process = None
        try:
            if process is not None and not process.is_alive():
                self._end(process)
                process = None
            if process is None:
                process = self._start()
                process.wait_ready(self._start_seconds)
            answer = b"" if event is None else process.ask(event, timeout)
        except BaseException:
            if process is not None:
                self._end(process)
            raise
        self._of_thread.process = process
        return answer

    def _start(self) -> Sandboxed:
        with self._starting:
            # Asked with the lock held: `close` takes it to see all processes that there will ever be.
            self._callers.refuse_if_closed()
            process = self._make()
            self._processes.add(process)
            return process

    def _end(self, process: Sandboxed) -> None:
        process.end()
        with self._starting:
            self._processes.discard(process)
