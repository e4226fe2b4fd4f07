"""`local_workers`: a pool of worker processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings, worker_environment
from dorylax.serverless.backends.local.process import WorkerProcess
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

_START_SECONDS = 120.0
"""For a worker to start, besides its cold start: it takes 1 to 2 on an idle machine."""


def local_workers(
    keys: RunKeys,
    *,
    workers: int,
    link: Link | None = None,
    cold_start_seconds: float = 0.0,
    threads: int = 1,
    settings: Mapping[str, JaxSetting] | None = None,
) -> Pool:
    """Calls the handler in processes of this machine.

    Args:
        keys: of the run.
        workers: how many processes, ≥ 1.
        link: how much each one's network is slowed down; None: not at all.
        cold_start_seconds: added to the start of each, ≥ 0.
        threads: of XLA in each, ≥ 1.
        settings: of JAX in each, by name; None: those of this process (`jax_settings`).

    Raises:
        ValueError: a number out of range.
    """
    given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
    start = functools.partial(WorkerProcess, given.to_line(), worker_environment(os.environ, threads))
    return Pool(workers, start, _START_SECONDS + cold_start_seconds)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """The workers of a run (`catalogue.BackendEntry.invoker`)."""
    link = Link(tensor.latency, tensor.bandwidth, tensor.latency_sigma)
    return local_workers(keys, workers=workers, link=link, cold_start_seconds=tensor.cold_start)
