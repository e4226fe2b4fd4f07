"""One emulated sandbox: the emulator, the runtime that it runs, and the HTTP connection to it.

The emulator crashes when a call comes while another is in flight, so one thread makes them all, one after the other.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.crew import has_ended
from dorylax.serverless.backends.emulator import supervisor
from dorylax.serverless.backends.emulator.replies import answer_of
from dorylax.serverless.function.invocation import Invocation
from dorylax.serverless.handler.settings import SandboxSettings

_HOST = "127.0.0.1"
_PATH = "/2015-03-31/functions/function/invocations"
_TAKEN = "address already in use"
_PORTS_TRIED = 5
_LISTENING_SECONDS = 0.005
"""Between two looks whether it listens yet; it takes 17 to 47 ms."""

_GRACE_SECONDS = 5.0
"""For the supervisor to end all below it: milliseconds, unless the machine is very busy."""

_LAST_LINES = 20


@final
class EmulatedProcess:
    """A sandbox that is starting or waits for events; see `Sandboxed`.

    Args:
        emulator: AWS's Runtime Interface Emulator.
        runtime: the command that it runs, and runs again when it has ended.
        settings: of the sandbox; they come with each invocation.
        environment: environment variables of both.

    Raises:
        InvokeError: the operating system refuses.
    """

    def __init__(
        self, emulator: Path, runtime: Sequence[str], settings: SandboxSettings, environment: Mapping[str, str]
    ) -> None:
        self._emulator, self._runtime = emulator, tuple(runtime)
        self._settings, self._environment = settings, environment
        self._lock = threading.Lock()  # of what is below; processes are started and signalled under it
        self._closing = False  # somebody else has ended it: nothing may be started any more
        self._process, self._connection = self._start()
        self._printed = b""

    @property
    def pid(self) -> int:
        """Process id of its supervisor."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Where the emulator listens, or will."""
        return self._connection.host, self._connection.port

    def is_alive(self) -> bool:
        """Whether the emulator runs; where the runtime has died, it starts another."""
        return self._process.poll() is None

    def wait_ready(self, timeout: float) -> None:
        """Waits until it listens, and calls it without an event, so that the runtime starts and has imported all.

        Raises:
            InvokeError: it took longer than `timeout` seconds ("timeout"), or could not be set up; its last lines are in
                the text.
        """
        deadline = time.monotonic() + timeout
        for left in reversed(range(_PORTS_TRIED)):
            try:
                self._connect(deadline, timeout)
                self._call(None, deadline, timeout, "starting")
                if not self.is_alive():  # then somebody else has taken the port, and has answered
                    raise self._died("starting")
                return
            except InvokeError as error:
                lines = self._last_lines()
                if left and _TAKEN in lines:
                    self._start_again()
                    continue
                text = f"an emulated sandbox cannot start: {error}\n{lines}".rstrip()
                raise InvokeError("timeout" if error.reason == "timeout" else "refused", text) from None

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Invokes the function with an event; see `Sandboxed`."""
        answer = self._call(event, time.monotonic() + timeout, timeout, "computing")
        if answer is None:
            raise self._failed(InvokeError("died", f"emulated sandbox {self.pid} was ended: it took an event for none"))
        return answer

    def terminate(self) -> None:
        """Asks it to end."""
        with self._lock:
            self._closing = True
            self._process.terminate()

    def kill(self) -> None:
        """Ends it."""
        with self._lock:
            self._closing = True
            _kill_session(self._process)

    def wait(self, timeout: float) -> bool:
        """Waits until it has ended; whether it has."""
        return has_ended(self._process, timeout)

    def end(self) -> None:
        """Ends it, if it has not, and gives back all that it held; a second call does nothing."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.closed:
            return
        self._connection.close()
        process.terminate()
        if not self.wait(_GRACE_SECONDS) or process.returncode < 0:
            # What could not end all below it: the emulator dies with it, but not a runtime that is busy.
            _kill_session(process)
        process.wait()
        process.stdin.close()
        self._printed = process.stdout.read(supervisor.LAST_BYTES)
        process.stdout.close()

    def _start(self) -> tuple[subprocess.Popen[bytes], http.client.HTTPConnection]:
        port, api_port = _free_ports()
        command = [
            *(sys.executable, "-I", "-S", supervisor.__file__, str(self._emulator), "--log-level", "warn"),
            *("--runtime-interface-emulator-address", f"{_HOST}:{port}"),
            *("--runtime-api-address", f"{_HOST}:{api_port}"),
            *self._runtime,
        ]
        try:
            # In a session of its own, which is how `kill` knows what belongs to it; Ctrl-C in a terminal does not reach it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=dict(self._environment),
                start_new_session=True,
            )
        except OSError as error:
            raise InvokeError("refused", f"an emulated sandbox cannot be started: {error}") from error
        return process, http.client.HTTPConnection(_HOST, port)

    def _start_again(self) -> None:
        """On other ports."""
        with self._lock:
            if self._closing:
                raise InvokeError("died", "an emulated sandbox was ended while starting")
            self._process, self._connection = self._start()

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
            # The emulator writes a reply at once, when the call has ended.
            with connection.getresponse() as response:
                status, body = response.status, response.read()
        except TimeoutError:
            raise self._late(doing, timeout) from None
        except (OSError, http.client.HTTPException):
            raise self._died(doing) from None
        try:
            return answer_of(status, body)
        except InvokeError as error:
            text = f"emulated sandbox {self.pid} was ended while {doing}: {error}"
            raise self._failed(InvokeError(error.reason, text)) from None

    def _died(self, doing: str) -> InvokeError:
        # Connections break a moment before the supervisor has ended.
        self.wait(timeout=1.0)
        code = self._process.poll()
        how = "was ended: its connection broke" if code is None else f"ended with exit status {code}"
        return self._failed(InvokeError("died", f"emulated sandbox {self.pid} {how} while {doing}"))

    def _late(self, doing: str, timeout: float) -> InvokeError:
        text = f"emulated sandbox {self.pid} was ended: {doing} took over {timeout:g} s"
        return self._failed(InvokeError("timeout", text))

    def _failed(self, error: InvokeError) -> InvokeError:
        self.end()
        return error

    def _last_lines(self) -> str:
        """What the emulator and the runtime have printed last; to be called when they have ended."""
        # The runtime writes a traceback with carriage returns and spaces that do not break.
        lines = self._printed.decode("utf-8", "replace").replace("\N{NO-BREAK SPACE}", " ").splitlines()
        return "\n".join(line for line in lines[-_LAST_LINES:] if line.strip())


def _left(deadline: float) -> float:
    """Seconds until then, as a socket takes them: 0 would mean not to wait at all; at most a day."""
    return min(max(deadline - time.monotonic(), 0.001), 86400.0)


def _free_ports() -> tuple[int, int]:
    """Two that nobody listens on just now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((_HOST, 0))
        other.bind((_HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def _kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kills a process that was started in a session of its own, and all others of the session."""
    members = [process.pid for process in supervisor.running() if process.session == leader.pid]
    if leader.poll() is not None and leader.pid in members:
        return  # the session has ended, and its number is another's
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
