"""`LocalWorkers`: a number of worker processes that take events one after the other."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Mapping
from typing import final

from dorylax.serverless.backends.crew import Crew
from dorylax.serverless.backends.environment import jax_settings, worker_environment
from dorylax.serverless.backends.local.process import WorkerProcess
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

_START_SECONDS = 120.0
"""That a worker may take to start, besides its cold start: 1 to 2 where nothing else runs."""


@final
class LocalWorkers:
    """Calls the handler in processes of this machine; an `Invoker`.

    Args:
        keys: of the run.
        workers: how many processes, ≥ 1. They start when they are needed, or with `warm`.
        link: how slow the network of each is made; None: as fast as it is.
        cold_start_seconds: that each takes longer to start, ≥ 0.
        threads: of XLA in each, ≥ 1.
        settings: of JAX in each, by name; None: those that it has here (`jax_settings`).

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        keys: RunKeys,
        *,
        workers: int,
        link: Link | None = None,
        cold_start_seconds: float = 0.0,
        threads: int = 1,
        settings: Mapping[str, JaxSetting] | None = None,
    ) -> None:
        for name, value in (("workers", workers), ("threads", threads)):
            if value < 1:
                raise ValueError(f"{name} must be ≥ 1, got {value}")
        given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
        start = functools.partial(WorkerProcess, given.to_line(), worker_environment(os.environ, threads))
        self._crew = Crew(workers, start, _START_SECONDS + cold_start_seconds)
        # Also when nobody closes it: at the end of the process, or when nobody has it any more.
        self._close = weakref.finalize(self, self._crew.close)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that run now."""
        return self._crew.pids

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker` and `Crew.invoke`."""
        return await self._crew.invoke(event, timeout)

    async def warm(self) -> None:
        """See `Crew.warm`."""
        await self._crew.warm()

    def close(self) -> None:
        """See `Crew.close`."""
        self._close()
