"""Pool of workers on a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

from dorylax.net.keys import RunKeys
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.backends.ray.actor import WorkerActor
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

_START_SECONDS = 120.0
"""Time limit for the initialization of a started worker. It takes 1 to 2 s on an idle machine."""


def ray_workers(
    keys: RunKeys, config: RayConfig, *, workers: int, settings: Mapping[str, JaxSetting] | None = None
) -> Pool:
    """Create a pool that calls the handler in Ray actors. This process stays connected to the cluster until the pool closes.

    Args:
        keys: Keys of the run.
        config: Address of the cluster, resources per worker, and timeouts.
        workers: Number of actors, ≥ 1.
        settings: JAX settings of the workers, keyed by setting, or None for this process's (`jax_settings`).

    Raises:
        ValueError: If `workers` < 1.
        ConfigError: If Ray is not installed or the cluster cannot be reached.
    """
    given = SandboxSettings(keys, jax=jax_settings() if settings is None else settings)
    with contextlib.ExitStack() as unfinished:
        ray = unfinished.enter_context(connected(config))
        start = functools.partial(WorkerActor, ray, config, given.to_line())
        pool = Pool(workers, start, _START_SECONDS, closed=unfinished.pop_all().close)
    return pool


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int, ray: RayConfig) -> Invoker:  # noqa: ARG001
    """Create the workers of a run from its settings (`catalogue.BackendEntry.invoker`)."""
    return ray_workers(keys, ray, workers=workers)
