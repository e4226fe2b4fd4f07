"""What lives in an actor: a host."""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
from typing import Any, final

from dorylax.pipeline.hosts.process import Failure, live
from dorylax.ray_cluster.connection import node_address


@final
class RayHost:
    """A host: `begin` starts it, and `run` returns when it has ended, with what went wrong (a `Failure` as a dictionary)."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._problem: dict[str, Any] | None = None

    def begin(self, name: str, content: bytes) -> tuple[str, dict[str, Any] | None]:
        """Starts it; gives its endpoint, and what went wrong.

        Args:
            name: of the host; logs on its node show it.
            content: what `HostSpec.to_bytes` gave.
        """
        # Into its node's log, where it is one of several.
        logging.basicConfig(format=f"{name}: {logging.BASIC_FORMAT}")
        told: queue.SimpleQueue[str] = queue.SimpleQueue()

        def life() -> None:
            try:
                live(content, told.put, host=node_address())
            except BaseException as error:
                self._problem = dataclasses.asdict(Failure.of(error))
            self._ended.set()
            told.put("")

        threading.Thread(target=life, name="host", daemon=True).start()
        endpoint = told.get()
        return endpoint, None if endpoint else self._problem or {"text": "it ended"}

    def run(self) -> dict[str, Any] | None:
        """Waits until it has ended."""
        self._ended.wait()
        return self._problem
