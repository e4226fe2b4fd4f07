"""Ray actor that holds the handler's sandbox."""

from __future__ import annotations

from typing import Any, final

from dorylax.serverless.handler.settings import SandboxSettings


@final
class Worker:
    """Worker that processes one event at a time. Its initialization imports JAX."""

    def __init__(self) -> None:
        self._sandbox: Any = None

    def initialise(self, settings: bytes) -> None:
        """Create the sandbox from settings encoded by `SandboxSettings.to_line`."""
        from dorylax.serverless.handler.open import open_sandbox

        self._sandbox = open_sandbox(SandboxSettings.from_line(settings))

    def answer(self, event: bytes) -> bytes:
        """Process an event, and return the encoded `Answer`."""
        from dorylax.serverless.handler.handle import handle

        return handle(event, self._sandbox)
