"""Sandboxes in AWS's Runtime Interface Emulator, as few lines as a bridge to them needs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import dorylax
from dorylax.serverless.backends.emulator.installed import VARIABLE
from support.ports import unused_ports
from support.processes import members

_PATH = "/2015-03-31/functions/function/invocations"
_HANDLER = "dorylax.serverless.function.entry.handler"
_START_SECONDS = 30.0
_LONG = 300.0


def need_emulator() -> str:
    """AWS's Runtime Interface Emulator; skips a test where it is not there."""
    found = os.environ.get(VARIABLE)
    if not found:
        pytest.skip(f"{VARIABLE} is not set: it names AWS's Runtime Interface Emulator (docs/serverless.md)")
    return found


class Reply(NamedTuple):
    """What a function gives: a body, and whether it is an error's (`X-Amz-Function-Error`)."""

    body: bytes
    error: str | None


class Emulated:
    """One sandbox, with one call in flight at most; `options` are Python's own."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        timeout: float = _LONG,
        handler: str = _HANDLER,
        options: tuple[str, ...] = (),
    ) -> None:
        self._port, runtime = unused_ports(2)
        address, api = f"127.0.0.1:{self._port}", f"127.0.0.1:{runtime}"
        self._process = subprocess.Popen(
            [
                *(need_emulator(), "--runtime-interface-emulator-address", address, "--runtime-api-address", api),
                *(sys.executable, *options, "-m", "awslambdaric", handler),
            ],
            env={**environment, "AWS_LAMBDA_FUNCTION_TIMEOUT": f"{timeout:g}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.free = threading.Lock()

    def invoke(self, payload: bytes) -> Reply:
        """As Lambda answers: the emulator marks no errors, and says of a time-out in plain text."""
        status, body = self._post(payload)
        if status == http.client.BAD_GATEWAY:
            return _error("Runtime.ExitError", "Error: Runtime exited with error: signal: killed")
        if body.startswith(b"Task timed out after"):
            return _error("Sandbox.Timedout", f"Error: {body.decode()}")
        with contextlib.suppress(ValueError):
            if "errorType" in json.loads(body):
                return Reply(body, "Unhandled")
        return Reply(body, None)

    def kill_runtime(self) -> None:
        """Kills what runs in the sandbox, as AWS does where memory has run out."""
        for pid in members(self._process.pid) - {self._process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The emulator gives its runtime a process group of its own, but not a session.
        self.kill_runtime()

    def _post(self, payload: bytes) -> tuple[int, bytes]:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_LONG)
            try:
                connection.request("POST", _PATH, payload)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except ConnectionRefusedError:  # it starts
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.01)
            finally:
                connection.close()


@contextlib.contextmanager
def emulated(count: int, *, timeout: float = _LONG, handler: str = _HANDLER) -> Iterator[list[Emulated]]:
    """So many sandboxes, each with one thread of XLA, that import this very package."""
    path = os.pathsep.join(filter(None, (str(Path(dorylax.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1", "PYTHONPATH": path}
    made: list[Emulated] = []
    try:
        for _ in range(count):
            made.append(Emulated(environment, timeout=timeout, handler=handler))
        yield made
    finally:
        for one in made:
            one.end()


def _error(kind: str, message: str) -> Reply:
    return Reply(json.dumps({"errorType": kind, "errorMessage": message}).encode(), "Unhandled")
