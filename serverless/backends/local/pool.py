"""Pool of worker processes on this machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from dorylax.net.keys import RunKeys
from dorylax.net.link import Link
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings, worker_environment
from dorylax.serverless.backends.local.process import WorkerProcess
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

_START_SECONDS = 120.0
"""Time limit for a worker to start, excluding its simulated cold start. A start takes 1 to 2 s on an idle machine."""


def local_workers(
    keys: RunKeys,
    *,
    workers: int,
    link: Link | None = None,
    cold_start_seconds: float = 0.0,
    threads: int = 1,
    settings: Mapping[str, JaxSetting] | None = None,
) -> Pool:
    """Create a pool that calls the handler in processes on this machine.

    Args:
        keys: Keys of the run.
        workers: Number of processes, ≥ 1.
        link: Simulated network link of each worker, or None for full speed.
        cold_start_seconds: Simulated cold start added to each start, in seconds (≥ 0).
        threads: Number of XLA threads per worker, ≥ 1.
        settings: JAX settings of the workers, keyed by setting, or None for this process's (`jax_settings`).

    Raises:
        ValueError: If a number is out of range.
    """
    given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
    start = functools.partial(WorkerProcess, given.to_line(), worker_environment(os.environ, threads))
    return Pool(workers, start, _START_SECONDS + cold_start_seconds)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """Create the workers of a run from its settings (`catalogue.BackendEntry.invoker`)."""
    link = Link(tensor.latency, tensor.bandwidth, tensor.latency_sigma)
    return local_workers(keys, workers=workers, link=link, cold_start_seconds=tensor.cold_start)
