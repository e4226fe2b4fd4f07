"""`ray_workers`: a pool of workers on a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.backends.ray.actor import WorkerActor
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

_START_SECONDS = 120.0
"""For a worker to be initialised, where there is room for it: it takes 1 to 2 on an idle machine."""


def ray_workers(
    keys: RunKeys, config: RayConfig, *, workers: int, settings: Mapping[str, JaxSetting] | None = None
) -> Pool:
    """Calls the handler in actors on a Ray cluster, to which this process is connected until the pool is closed.

    Args:
        keys: of the run.
        config: which cluster, and what to ask it for.
        workers: how many actors, ≥ 1.
        settings: of JAX in each, by name; None: those of this process (`jax_settings`).

    Raises:
        ValueError: fewer than 1 worker.
        ConfigError: Ray is not installed, or there is no such cluster.
    """
    given = SandboxSettings(keys, jax=jax_settings() if settings is None else settings)
    with contextlib.ExitStack() as unfinished:
        ray = unfinished.enter_context(connected(config))
        start = functools.partial(WorkerActor, ray, config, given.to_line())
        pool = Pool(workers, start, _START_SECONDS, closed=unfinished.pop_all().close)
    return pool


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int, ray: RayConfig) -> Invoker:  # noqa: ARG001
    """The workers of a run (`catalogue.BackendEntry.invoker`)."""
    return ray_workers(keys, ray, workers=workers)
