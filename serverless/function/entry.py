"""Entry point of the function: `python -m awslambdaric dorylax.serverless.function.entry.handler`.

The function's image contains Python and the imports of this module. Invocations are never logged.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import jax

from dorylax.net.client import DataClient
from dorylax.serverless.function.invocation import Invocation, response
from dorylax.serverless.handler.handle import handle
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.serverless.handler.settings import SandboxSettings

jax.devices()  # start XLA during the initialization of the sandbox instead of the first call


class _NewestSandbox:
    """Sandbox of the newest run, replaced when the settings change. A function outlives a run and its keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settings: SandboxSettings | None = None
        self._sandbox: Sandbox | None = None
        self._data: DataClient | None = None

    def sandbox(self, settings: SandboxSettings) -> Sandbox:
        with self._lock:
            if self._sandbox is None or settings != self._settings:
                self._drop()
                for name, value in settings.jax.items():
                    jax.config.update(name, value)
                time.sleep(settings.cold_start_seconds)
                self._data = DataClient(settings.keys, settings.link)
                self._sandbox = Sandbox(self._data)
                self._settings = settings
            return self._sandbox

    def _drop(self) -> None:
        if self._sandbox is not None and self._data is not None:
            self._sandbox.close()
            self._data.close()
            self._sandbox = self._data = None


_newest = _NewestSandbox()


def handler(document: object, _context: object) -> dict[str, Any]:
    """Process one invocation at a time.

    Args:
        document: `Invocation` as parsed JSON.
        _context: Context of the runtime, unused.

    Raises:
        WireError: If the document is not an invocation. Failures of the event are reported in the response.
    """
    invocation = Invocation.read(document)
    sandbox = _newest.sandbox(invocation.settings)
    return response(None if invocation.event is None else handle(invocation.event, sandbox))
