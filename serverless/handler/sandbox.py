"""State of a sandbox between calls: compiled stages and the newest weights."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from dorylax.net.errors import TaskFailedError
from dorylax.program.artefact import stage_file
from dorylax.program.artefact.stage_file import Stage, sha256_of
from dorylax.serverless.handler.download import download, shown
from dorylax.serverless.wire import names

_log = logging.getLogger("dorylax.handler")

Arrays = tuple[np.ndarray, ...]


@runtime_checkable
class Data(Protocol):
    """Interface of the data plane for sandboxes, implemented by `dorylax.net.client.DataClient`."""

    def get(self, address: str, name: str) -> Arrays:
        """Return the arrays offered under a name. Two threads may call it concurrently."""
        ...

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Deliver arrays under a name."""
        ...


class FetchedStage(NamedTuple):
    """A stage, and the bytes fetched for it: 0 if it was cached."""

    stage: Stage
    nbytes: int


class FetchedArrays(NamedTuple):
    """Arrays, and the bytes fetched for them: 0 if they were cached."""

    arrays: Arrays
    nbytes: int


@final
class Sandbox:
    """State between calls of the handler, for one call at a time.

    Args:
        data: Data plane; the sandbox does not close it.
        versions: Number of recently used weight versions to keep, ≥ 1. Intervals of one epoch share one version, or a few
            with asynchronous updates.
    """

    def __init__(self, data: Data, *, versions: int = 4) -> None:
        self.data = data
        self._versions = versions
        self._stages: dict[str, Stage] = {}
        self._weights: OrderedDict[tuple[str, str], Arrays] = OrderedDict()
        self._ahead: ThreadPoolExecutor | None = None
        self._cold = True

    def first_call(self) -> bool:
        """Return True at the first call of this method."""
        cold, self._cold = self._cold, False
        return cold

    def stage(self, address: str, sha256: str, url: str | None = None) -> FetchedStage:
        """Return a stage by its hash, and fetch it once.

        Args:
            address: Address of the graph server that offers the artefact.
            sha256: Hash of the artefact.
            url: Alternative source of the artefact.

        Raises:
            TaskFailedError: The artefact cannot be fetched, or has another hash. It is not cached then.
            InputError: This JAX cannot read the artefact.
            ValueError: The stage computes in 64 bits, but `jax_enable_x64` is off.
        """
        if sha256 in self._stages:
            return FetchedStage(self._stages[sha256], 0)
        if url is None:
            arrays = self.data.get(address, names.artefact(sha256))
            content = b"".join(array.tobytes() for array in arrays)
        else:
            content = download(url)
        found = sha256_of(content)
        if found != sha256:
            sender = address if url is None else shown(url)
            problem = (
                f"the artefact that {sender} sent must have SHA-256 {sha256}, got {found} ({len(content)} bytes): "
                "it is not run"
            )
            _log.warning("%s", problem)
            raise TaskFailedError(problem)
        stage = self._stages[sha256] = stage_file.load(content)
        return FetchedStage(stage, len(content))

    def weights(self, address: str, version: int, ahead: int = 0) -> FetchedArrays:
        """Return all leaves of the parameters of a version, from the cache if it was used recently.

        Args:
            address: Address of the parameter server.
            version: Number of the version.
            ahead: Number of versions beyond it for predicted weights.

        Raises:
            TaskFailedError: The weights cannot be fetched.
        """
        key = (address, names.weights(version, ahead))
        if key in self._weights:
            self._weights.move_to_end(key)
            return FetchedArrays(self._weights[key], 0)
        arrays = self.data.get(*key)
        self._weights[key] = arrays
        while len(self._weights) > self._versions:
            self._weights.popitem(last=False)
        return FetchedArrays(arrays, sum(array.nbytes for array in arrays))

    def get_ahead(self, address: str, name: str) -> Future[Arrays]:
        """Start to get arrays in the sandbox's thread."""
        if self._ahead is None:
            self._ahead = ThreadPoolExecutor(1, thread_name_prefix="get ahead")
        return self._ahead.submit(self.data.get, address, name)

    def close(self) -> None:
        """Stop the thread. A second call does nothing."""
        if self._ahead is not None:
            self._ahead.shutdown()
            self._ahead = None
