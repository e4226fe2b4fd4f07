"""Pool of sandbox processes, with one thread of this process per sandbox.

The thread starts its sandbox, sends events, and waits for results. It replaces a dead or timed-out sandbox at the next
event. The implementations of sandboxes are `local`, `emulator`, and `ray`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol, final, runtime_checkable

from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.callers import Callers
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_GRACE_SECONDS = 2.0
"""Grace period in seconds between terminating and killing the processes."""


@runtime_checkable
class Sandboxed(Protocol):
    """Sandbox: one process, or several related ones, that runs the handler.

    One thread starts, calls, and ends the sandbox. Other threads may only `terminate`, `kill`, or `wait`, and may `end` it
    after that thread has ended. A sandbox has ended once a method raises an TaskFailedError.
    """

    @property
    def pid(self) -> int:
        """Process id on the sandbox's machine."""
        ...

    def is_alive(self) -> bool:
        """Return whether the sandbox runs."""
        ...

    def wait_ready(self, timeout: float) -> None:
        """Wait until the sandbox accepts events.

        Raises:
            TaskFailedError: If the sandbox dies, cannot be set up, or takes longer than `timeout` seconds after its
                placement.
        """
        ...

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Send an event and wait for the encoded `Answer`.

        Raises:
            TaskFailedError: If the sandbox dies, returns invalid data, or takes longer than `timeout` seconds.
        """
        ...

    def terminate(self) -> None:
        """Request the end of the sandbox, without waiting."""
        ...

    def kill(self) -> None:
        """Kill the sandbox."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the sandbox, and return whether it has ended."""
        ...

    def end(self) -> None:
        """Kill the sandbox if necessary, and release its resources. Idempotent."""
        ...


@final
class ProcessSlots:
    """Sandboxes of a pool, one per thread. Holds no reference to the pool, so the pool can be garbage-collected.

    Args:
        size: Number of sandboxes, ≥ 1. They start on demand or with `warm`.
        start: Function that creates a sandbox, which may still be starting.
        start_seconds: Time limit for a sandbox to become ready, in seconds.
        closed: Callback after the end of all sandboxes.
    """

    def __init__(
        self, size: int, start: Callable[[], Sandboxed], start_seconds: float, closed: Callable[[], None]
    ) -> None:
        self._make, self._start_seconds, self._closed = start, start_seconds, closed
        self._callers = Callers(size, "the workers")
        self._of_thread = threading.local()  # the thread's process
        self._starting = threading.Lock()  # guards the set below; held for milliseconds while a process is created
        self._processes: set[Sandboxed] = set()
        self._owner = os.getpid()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running sandboxes."""
        with self._starting:
            return tuple(sorted(process.pid for process in self._processes if process.is_alive()))

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """Process an event in a sandbox; see `Invoker`. Events queue in FIFO order while all sandboxes are busy.

        Cancelling the call removes a queued event. A sandbox that has started the event finishes it, and the result is
        dropped.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise TaskFailedError(f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}", "refused")
        return await asyncio.wrap_future(self._callers.submit(lambda: self._ask(event, timeout)))

    async def warm(self) -> None:
        """Start all missing sandboxes concurrently, and wait until they are ready.

        Raises:
            TaskFailedError: If a sandbox cannot be started.
        """
        await asyncio.gather(*map(asyncio.wrap_future, self._callers.submit_to_each(lambda: self._ask(None, 0.0))))

    def close(self) -> None:
        """End all sandboxes. Queued events are refused, and running events fail. Idempotent."""
        if os.getpid() != self._owner:
            return  # in a fork, the processes belong to the parent, and the parent's threads may hold the locks
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
        for process in processes:  # their threads have ended, or are the current one
            self._end(process)
        self._closed()

    def _ask(self, event: bytes | None, timeout: float) -> bytes:
        """Send an event to this thread's sandbox, or only start the sandbox for None. Replaces a dead sandbox."""
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
            # Check under the lock, so that `close` sees every process that is ever created.
            self._callers.refuse_if_closed()
            process = self._make()
            self._processes.add(process)
            return process

    def _end(self, process: Sandboxed) -> None:
        process.end()
        with self._starting:
            self._processes.discard(process)
