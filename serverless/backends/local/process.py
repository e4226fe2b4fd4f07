"""One worker process and its two pipes."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping
from typing import final

from dorylax.net.errors import FailureReason, TaskFailedError
from dorylax.processes import has_ended, signal_name, start
from dorylax.serverless.backends.local.lines import READY, content_of, line_of
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_MODULE = "dorylax.serverless.backends.local.worker"
_PRELOAD = (_MODULE, *(f"dorylax.serverless.handler.{name}" for name in ("handle", "open")))
_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 2 * MAX_EVENT_BYTES
"""Maximum length of a line. An answer is at most as long as an event, plus a third for base64."""


@final
class WorkerProcess:
    """`Sandboxed` worker process on this machine.

    Args:
        settings: Encoded settings, the first line sent to the worker.
        environment: Environment variables of the worker.

    Raises:
        TaskFailedError: If the operating system cannot start the process.
    """

    def __init__(self, settings: bytes, environment: Mapping[str, str]) -> None:
        try:
            self._process = start(f"{_MODULE}:main", environment, preload=_PRELOAD)
        except OSError as error:
            raise TaskFailedError(f"a worker process cannot be started: {error}", "refused") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        # Avoid blocking on a process that has stopped reading.
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._greeting = settings
        self._received = bytearray()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether the worker runs."""
        return self._process.poll() is None

    def wait_ready(self, timeout: float) -> None:
        """Send the settings and wait until the worker accepts events.

        Raises:
            TaskFailedError: If the worker dies or takes longer than `timeout` seconds; with "refused" if its setup fails.
        """
        deadline = time.monotonic() + timeout
        line = self._exchange(self._greeting, deadline, timeout, "starting")
        while line != READY:  # skip lines printed by libraries
            line = self._exchange(b"", deadline, timeout, "starting")

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Send an event and wait for the result; see `Sandboxed`."""
        line = self._exchange(line_of(event), time.monotonic() + timeout, timeout, "computing")
        try:
            return content_of(line)
        except ValueError as error:
            raise self._failed("died", f"worker process {self.pid} was ended: {error}") from None

    def terminate(self) -> None:
        """Send SIGTERM to the worker."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the worker."""
        self._process.kill()

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the worker, and return whether it has ended."""
        return has_ended(self._process, timeout)

    def end(self) -> None:
        """Kill the worker and close its pipes. Idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _exchange(self, line: bytes, deadline: float, timeout: float, doing: str) -> bytes:
        """Write a line and read the next one."""
        left = memoryview(line)
        while (end := self._received.find(b"\n") + 1) == 0:
            poll = select.poll()
            poll.register(self._output, select.POLLIN)
            if left:
                poll.register(self._input, select.POLLOUT)
            # Round up to avoid a busy loop in the last millisecond. Limit to one day, because `poll` takes an int.
            seconds = min(deadline - time.monotonic(), 86400.0)
            if seconds <= 0:
                raise self._failed("timeout", f"worker process {self.pid} was ended: {doing} took over {timeout:g} s")
            for descriptor, _ in poll.poll(int(seconds * 1000) + 1):
                if descriptor == self._input:
                    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # a dead worker also closes its output
                        left = left[os.write(self._input, left) :]
                elif not (received := os.read(self._output, _READ_BYTES)):
                    raise self._died(doing)
                else:
                    self._received += received
            if len(self._received) > _MAX_LINE_BYTES:
                raise self._failed("died", f"worker process {self.pid} was ended: it answers without end")
        found = bytes(self._received[:end])
        del self._received[:end]
        return found

    def _died(self, doing: str) -> TaskFailedError:
        # The output closes shortly before the exit status is available.
        self.wait(timeout=1.0)
        code = self._process.poll()
        if code is not None and code > 0 and doing == "starting":
            return self._failed(
                "refused",
                f"worker process {self.pid} could not start (exit status {code}): what it wrote to the standard error says "
                "why",
            )
        how = (
            "closed its output"
            if code is None
            else f"died of {signal_name(-code)}"
            if code < 0
            else f"exited with {code}"
        )
        return self._failed("died", f"worker process {self.pid} {how} while {doing}")

    def _failed(self, reason: FailureReason, text: str) -> TaskFailedError:
        self.end()
        return TaskFailedError(text, reason)
