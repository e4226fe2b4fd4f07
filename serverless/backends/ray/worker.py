"""What lives in an actor: the handler's sandbox."""

from __future__ import annotations

from typing import Any, final

from dorylax.serverless.handler.settings import SandboxSettings


@final
class Worker:
    """A worker: it is initialised, and then answers one event at a time. JAX is loaded when it is initialised."""

    def __init__(self) -> None:
        self._sandbox: Any = None

    def initialise(self, settings: bytes) -> None:
        """Makes the sandbox of `SandboxSettings.to_line`."""
        from dorylax.serverless.handler.open import open_sandbox

        self._sandbox = open_sandbox(SandboxSettings.from_line(settings))

    def answer(self, event: bytes) -> bytes:
        """Has the handler answer an event."""
        from dorylax.serverless.handler.handle import handle

        return handle(event, self._sandbox)
