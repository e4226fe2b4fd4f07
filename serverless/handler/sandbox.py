"""What a sandbox keeps between calls: the stages that it has compiled, and the newest weights."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from dorylax.program.artefact import stage_file
from dorylax.program.artefact.stage_file import Stage, sha256_of
from dorylax.serverless.data.errors import DataError
from dorylax.serverless.handler.download import download, shown
from dorylax.serverless.wire import names

_log = logging.getLogger("dorylax.handler")

Arrays = tuple[np.ndarray, ...]


@runtime_checkable
class Data(Protocol):
    """What a sandbox needs of the data plane; `dorylax.serverless.data.DataClient` provides it."""

    def get(self, address: str, name: str) -> Arrays:
        """Arrays that are offered under a name. Two threads may call this at a time."""
        ...

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Delivers arrays under a name."""
        ...


class FetchedStage(NamedTuple):
    """A stage, and the bytes that were fetched for it: 0 if it was there already."""

    stage: Stage
    nbytes: int


class FetchedArrays(NamedTuple):
    """Arrays, and the bytes that were fetched for them: 0 if they were there already."""

    arrays: Arrays
    nbytes: int


@final
class Sandbox:
    """What lasts between calls of the handler. One call at a time.

    Args:
        data: fetches and delivers; the sandbox does not close it.
        versions: how many versions of weights to keep, ≥ 1: those used last. Intervals of one epoch share a version or,
            with asynchronous updates, a few.
    """

    def __init__(self, data: Data, *, versions: int = 4) -> None:
        self.data = data
        self._versions = versions
        self._stages: dict[str, Stage] = {}
        self._weights: OrderedDict[tuple[str, str], Arrays] = OrderedDict()
        self._ahead: ThreadPoolExecutor | None = None
        self._cold = True

    def first_call(self) -> bool:
        """Whether this is called for the first time."""
        cold, self._cold = self._cold, False
        return cold

    def stage(self, address: str, sha256: str, url: str | None = None) -> FetchedStage:
        """A stage by its hash, fetched once.

        Args:
            address: of the graph server, which offers its artefact.
            sha256: of the artefact.
            url: where to fetch it instead.

        Raises:
            DataError: it cannot be fetched, or what came has another hash; that is not kept.
            StageFileError: this JAX cannot read it.
            ValueError: it computes in 64 bits and `jax_enable_x64` is off.
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
            raise DataError(problem)
        stage = self._stages[sha256] = stage_file.load(content)
        return FetchedStage(stage, len(content))

    def weights(self, address: str, version: int, ahead: int = 0) -> FetchedArrays:
        """All leaves of the parameters of a version, fetched once while it is one of those used last.

        Args:
            address: of the parameter server.
            version: its number.
            ahead: how many versions beyond it they are predicted.

        Raises:
            DataError: they cannot be fetched.
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
        """Begins to get arrays, in a thread that lasts as long as the sandbox."""
        if self._ahead is None:
            self._ahead = ThreadPoolExecutor(1, thread_name_prefix="get ahead")
        return self._ahead.submit(self.data.get, address, name)

    def close(self) -> None:
        """Ends the thread; a second call does nothing."""
        if self._ahead is not None:
            self._ahead.shutdown()
            self._ahead = None
