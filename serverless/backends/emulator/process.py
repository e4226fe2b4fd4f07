"""One emulated sandbox: the emulator, the runtime that it runs, and the HTTP connection to it.

The emulator crashes when a call comes while another is in flight, so a single thread makes them all.
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

from dorylax.serverless.backends.base import InvokeError, InvokeReason
from dorylax.serverless.backends.emulator import supervisor
from dorylax.serverless.backends.emulator.replies import answer_of
from dorylax.serverless.backends.process_slots import has_ended
from dorylax.serverless.function.invocation import Invocation
from dorylax.serverless.handler.settings import SandboxSettings

_log = logging.getLogger("dorylax.emulator")

_HOST = "127.0.0.1"
_PATH = "/2015-03-31/functions/function/invocations"
_LISTENING_SECONDS = 0.005
"""How often to look whether it listens yet; it takes 17 to 47 ms."""

_GRACE_SECONDS = 5.0
"""For the supervisor to end all below it: milliseconds, unless the machine is very busy."""

_DYING_SECONDS = 0.002
"""How often to look whether all that was killed is gone: the system takes a moment to free a process's memory."""

_LAST_LINES = 20


@final
class EmulatedProcess:
    """A sandbox that is starting or waits for events; see `Sandboxed`.

    Args:
        emulator: AWS's Runtime Interface Emulator.
        runtime: the command that it runs, and restarts when it has ended.
        settings: of the sandbox; they come with each invocation.
        environment: environment variables of both.

    Raises:
        InvokeError: the operating system refuses.
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
            # In a session of its own, by which `kill` knows what belongs to it; Ctrl-C in a terminal does not reach it.
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
            raise InvokeError("refused", f"an emulated sandbox cannot be started: {error}") from error
        self._connection = http.client.HTTPConnection(_HOST, port)

    @property
    def pid(self) -> int:
        """Process id of its supervisor."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Where the emulator listens, or will."""
        return self._connection.host, self._connection.port

    def is_alive(self) -> bool:
        """Whether the emulator runs; it restarts a runtime that has died."""
        return self._process.poll() is None

    def wait_ready(self, timeout: float) -> None:
        """Waits until it listens, and calls it without an event, so that the runtime starts and imports everything.

        Raises:
            InvokeError: it took longer than `timeout` seconds ("timeout"), or could not be set up ("refused"); its last
                lines are logged.
        """
        deadline = time.monotonic() + timeout
        try:
            self._connect(deadline, timeout)
            self._call(None, deadline, timeout, "starting")
        except InvokeError as error:
            reason: InvokeReason = "timeout" if error.reason == "timeout" else "refused"
            raise InvokeError(reason, f"an emulated sandbox cannot start: {error}{self._told()}") from None
        self._release_ports()

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Invokes the function with an event; see `Sandboxed`."""
        answer = self._call(event, time.monotonic() + timeout, timeout, "computing")
        if answer is None:
            raise self._failed(InvokeError("died", f"emulated sandbox {self.pid} was ended: it took an event for none"))
        return answer

    def terminate(self) -> None:
        """Asks it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it."""
        _kill_session(self._process)

    def wait(self, timeout: float) -> bool:
        """Waits until it has ended; says whether it has."""
        return has_ended(self._process, timeout)

    def end(self) -> None:
        """Ends it, if it has not ended, and frees all that it held; a second call does nothing."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.closed:
            return
        self._connection.close()
        self._release_ports()
        process.terminate()
        if not self.wait(_GRACE_SECONDS) or process.returncode < 0:
            # It could not end all below it: the emulator dies with it, but a busy runtime does not.
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
            # The emulator writes the whole reply when the call has ended.
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

    def _told(self) -> str:
        """The end of an error's text: the last line that emulator and runtime have printed; several go to the log."""
        # The runtime writes a traceback with carriage returns and spaces that do not break.
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
    """Seconds until then, as a socket takes them: > 0, which would mean not to wait, and at most a day."""
    return min(max(deadline - time.monotonic(), 0.001), 86400.0)


def _reserve_port() -> socket.socket:
    """Holds a free port without listening: the emulator, which sets SO_REUSEADDR too, may listen on it.

    Nobody else gets it meanwhile, so no sandbox ever calls the emulator of another that starts at the same time.
    """
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((_HOST, 0))
    return found


def _kill_session(leader: subprocess.Popen[bytes]) -> bool:
    """Kills all processes of the session that a process was started in; says whether there were any."""
    gone = leader.poll() is not None  # asked first: it may end during the search for the others
    members = [one.pid for one in supervisor.running() if one.session == leader.pid and not one.ended]
    if gone and leader.pid in members:
        return False  # the session has ended, and its number is another's
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(members)
