"""One emulated sandbox: the Lambda emulator, its runtime, and an HTTP connection to them.

The emulator crashes on concurrent calls, so a single thread makes all calls.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from dorylax.net.errors import FailureReason, TaskFailedError
from dorylax.processes import has_ended
from dorylax.serverless.backends.emulator import supervisor
from dorylax.serverless.backends.emulator.replies import answer_of
from dorylax.serverless.function.invocation import Invocation
from dorylax.serverless.handler.settings import SandboxSettings

_log = logging.getLogger("dorylax.emulator")

_HOST = "127.0.0.1"
_PATH = "/2015-03-31/functions/function/invocations"
_LISTENING_SECONDS = 0.005
"""Polling interval for the emulator's port in seconds. The emulator listens after 17 to 47 ms."""

_GRACE_SECONDS = 5.0
"""Grace period in seconds for the supervisor to kill its descendants. It normally takes milliseconds."""

_DYING_SECONDS = 0.002
"""Polling interval in seconds for the end of killed processes, whose memory takes a moment to be freed."""

_LAST_LINES = 20


@final
class EmulatedProcess:
    """`Sandboxed` function in AWS's Runtime Interface Emulator.

    Args:
        emulator: Path of the Runtime Interface Emulator.
        runtime: Command of the runtime, which the emulator restarts after its end.
        settings: Settings of the sandbox, sent with each invocation.
        environment: Environment variables of the emulator and the runtime.

    Raises:
        TaskFailedError: If the operating system cannot start the process.
    """

    def __init__(
        self, emulator: Path, runtime: Sequence[str], settings: SandboxSettings, environment: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._printed = b""
        self._reserved: list[socket.socket] = []
        try:
            for _ in range(2):
                self._reserved.append(_reserve_port())
            port, api_port = (one.getsockname()[1] for one in self._reserved)
            # Start a new session, so that `kill` can identify its processes and Ctrl-C in a terminal does not reach them.
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", supervisor.__file__, str(emulator), "--log-level", "warn"),
                    *("--runtime-interface-emulator-address", f"{_HOST}:{port}"),
                    *("--runtime-api-address", f"{_HOST}:{api_port}"),
                    *runtime,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            self._release_ports()
            raise TaskFailedError(f"an emulated sandbox cannot be started: {error}", "refused") from error
        self._connection = http.client.HTTPConnection(_HOST, port)

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the emulator, which may not listen yet."""
        return self._connection.host, self._connection.port

    def is_alive(self) -> bool:
        """Return whether the emulator runs. The emulator restarts a dead runtime."""
        return self._process.poll() is None

    def wait_ready(self, timeout: float) -> None:
        """Wait for the emulator to listen, then invoke it without an event to start the runtime and its imports.

        Raises:
            TaskFailedError: With "timeout" after `timeout` seconds, or "refused" if the setup fails. The last lines of the
                output are logged.
        """
        deadline = time.monotonic() + timeout
        try:
            self._connect(deadline, timeout)
            self._call(None, deadline, timeout, "starting")
        except TaskFailedError as error:
            reason: FailureReason = "timeout" if error.reason == "timeout" else "refused"
            raise TaskFailedError(f"an emulated sandbox cannot start: {error}{self._told()}", reason) from None
        self._release_ports()

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Invoke the function with an event; see `Sandboxed`."""
        answer = self._call(event, time.monotonic() + timeout, timeout, "computing")
        if answer is None:
            raise self._failed(
                TaskFailedError(f"emulated sandbox {self.pid} was ended: it took an event for none", "died")
            )
        return answer

    def terminate(self) -> None:
        """Send SIGTERM to the supervisor."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill all processes of the session."""
        _kill_session(self._process)

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the supervisor, and return whether it has ended."""
        return has_ended(self._process, timeout)

    def end(self) -> None:
        """Kill the processes if necessary, and release all resources. Idempotent."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.closed:
            return
        self._connection.close()
        self._release_ports()
        process.terminate()
        if not self.wait(_GRACE_SECONDS) or process.returncode < 0:
            # The supervisor did not kill its descendants. The emulator dies with it, but a busy runtime survives.
            deadline = time.monotonic() + _GRACE_SECONDS
            while _kill_session(process) and time.monotonic() < deadline:
                time.sleep(_DYING_SECONDS)
        process.wait()
        process.stdin.close()
        self._printed = process.stdout.read(supervisor.LAST_BYTES)
        process.stdout.close()

    def _connect(self, deadline: float, timeout: float) -> None:
        while True:
            self._connection.timeout = _left(deadline)
            try:
                self._connection.connect()
                return
            except OSError:
                if not self.is_alive():
                    raise self._died("starting") from None
                if time.monotonic() >= deadline:
                    raise self._late("starting", timeout) from None
            time.sleep(_LISTENING_SECONDS)

    def _call(self, event: bytes | None, deadline: float, timeout: float, doing: str) -> bytes | None:
        connection = self._connection
        try:
            if connection.sock is None:  # the emulator may close it after a reply
                connection.connect()
            connection.sock.settimeout(_left(deadline))
            connection.request("POST", _PATH, Invocation(self._settings, event).encode())
            connection.sock.settimeout(_left(deadline))
            # The emulator buffers the reply until the call ends.
            with connection.getresponse() as response:
                status, body = response.status, response.read()
        except TimeoutError:
            raise self._late(doing, timeout) from None
        except (OSError, http.client.HTTPException):
            raise self._died(doing) from None
        try:
            return answer_of(status, body)
        except TaskFailedError as error:
            text = f"emulated sandbox {self.pid} was ended while {doing}: {error}"
            raise self._failed(TaskFailedError(text, error.reason)) from None

    def _died(self, doing: str) -> TaskFailedError:
        # Connections break shortly before the supervisor ends.
        self.wait(timeout=1.0)
        code = self._process.poll()
        how = "was ended: its connection broke" if code is None else f"ended with exit status {code}"
        return self._failed(TaskFailedError(f"emulated sandbox {self.pid} {how} while {doing}", "died"))

    def _late(self, doing: str, timeout: float) -> TaskFailedError:
        text = f"emulated sandbox {self.pid} was ended: {doing} took over {timeout:g} s"
        return self._failed(TaskFailedError(text, "timeout"))

    def _failed(self, error: TaskFailedError) -> TaskFailedError:
        self.end()
        return error

    def _told(self) -> str:
        """Return the printed line as a suffix for an error's text; log multiple lines instead."""
        # The runtime prints tracebacks with carriage returns and non-breaking spaces.
        text = self._printed.decode("utf-8", "replace").replace("\N{NO-BREAK SPACE}", " ")
        lines = [line for line in text.splitlines()[-_LAST_LINES:] if line.strip()]
        if len(lines) > 1:
            _log.error("the last lines of emulated sandbox %d:\n%s", self.pid, "\n".join(lines))
            return "; its last lines are in the log"
        return f" ({lines[0].strip()})" if lines else ""

    def _release_ports(self) -> None:
        for one in self._reserved:
            one.close()


def _left(deadline: float) -> float:
    """Return the seconds left as a socket timeout: at least 1 ms, since 0 means non-blocking, and at most one day."""
    return min(max(deadline - time.monotonic(), 0.001), 86400.0)


def _reserve_port() -> socket.socket:
    """Bind a free port without listening on it. The emulator can still listen on it, since it sets SO_REUSEADDR, too.

    The reservation keeps other sandboxes that start at the same time from using the same port.
    """
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((_HOST, 0))
    return found


def _kill_session(leader: subprocess.Popen[bytes]) -> bool:
    """Kill all processes in the leader's session, and return whether there were any."""
    gone = leader.poll() is not None  # poll first: the leader may end during the search for the others
    members = [one.pid for one in supervisor.running() if one.session == leader.pid and not one.ended]
    if gone and leader.pid in members:
        return False  # the session has ended, and another one has reused its id
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(members)
