"""What lives in an actor: the handler's sandbox, and what the pool asks of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a worker lives.

    Attributes:
        node: the address of its node.
        pid: of its process there.
    """

    node: str
    pid: int


def worker_class() -> type:
    """The class of the actors. It is sent to the nodes as it is, so that it can say where modules are found."""

    class Worker:
        """A worker: it says where it is, is initialised, and then answers one event at a time."""

        def __init__(self, places: Sequence[str], version: str) -> None:
            self._version = version
            self._sandbox: Any = None
            sys.path.extend(place for place in places if place not in sys.path)

        def live(self) -> None:
            """Never returns: whoever waits for it hears of the actor's end."""
            threading.Event().wait()

        def place(self) -> tuple[str, int]:
            """The address of its node, and its process id there."""
            import ray

            node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            return node, os.getpid()

        def initialise(self, settings: bytes) -> str | None:
            """Makes the sandbox of `SandboxSettings.to_line`; gives what is wrong with this node."""
            from dorylax.version import __version__ as version

            if version != self._version:
                return f"its node has dorylax {version}, the driver {self._version}: install the same"
            from dorylax.serverless.handler.open import open_sandbox
            from dorylax.serverless.handler.settings import SandboxSettings

            self._sandbox = open_sandbox(SandboxSettings.from_line(settings))
            return None

        def ask(self, event: bytes) -> bytes:
            """Has the handler answer an event."""
            from dorylax.serverless.handler.handle import handle

            return handle(event, self._sandbox)

    return Worker
