"""A host in a Ray actor."""

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
    """A host. `begin` starts it; `run` returns at its end, with a `Failure` as a dictionary or None."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._problem: dict[str, Any] | None = None

    def begin(self, name: str, content: bytes) -> tuple[str, dict[str, Any] | None]:
        """Start the host; return its endpoint and a failure.

        Args:
            name: Name of the host in the node's logs.
            content: Result of `HostSpec.to_bytes`.
        """
        # Into the node's log, which several hosts share.
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
        """Wait for the end of the host."""
        self._ended.wait()
        return self._problem
