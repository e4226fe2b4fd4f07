"""Pool of sandboxes in AWS's Runtime Interface Emulator."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

from dorylax.net.keys import RunKeys
from dorylax.net.link import Link
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.emulator.environment import function_environment
from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.serverless.backends.emulator.process import EmulatedProcess
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.config import LONGEST_CALL, TensorConfig
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

RUNTIME = (sys.executable, "-m", "awslambdaric", "dorylax.serverless.function.entry.handler")
"""Command of a function's image."""

_START_SECONDS = 120.0
"""Time limit for a sandbox to start, excluding its simulated cold start. A start takes 1 to 2 s on an idle machine."""


def emulated_functions(
    keys: RunKeys,
    *,
    workers: int,
    timeout: float,
    link: Link | None = None,
    cold_start_seconds: float = 0.0,
    threads: int = 1,
    settings: Mapping[str, JaxSetting] | None = None,
) -> Pool:
    """Create a pool that calls the handler in emulated functions on this machine.

    `Pool.pids` are the process ids of the supervisors. The emulator's loopback ports are open to other users of the machine,
    so use it for trials, not for secrets.

    Args:
        keys: Keys of the run.
        workers: Number of sandboxes, ≥ 1.
        timeout: Time limit of the function in seconds, > 0. Unlike Lambda, the emulator includes the start of the runtime in
            the first call, so its limit is at least the start limit. The `timeout` of `invoke` is exact.
        link: Simulated network link of each sandbox, or None for full speed.
        cold_start_seconds: Simulated cold start added to each start, in seconds (≥ 0).
        threads: Number of XLA threads per sandbox, ≥ 1.
        settings: JAX settings of the sandboxes, keyed by setting, or None for this process's (`jax_settings`).

    Raises:
        ValueError: If a number is out of range.
        ConfigError: If the emulator or AWS's runtime is missing.
    """
    if not timeout > 0:
        raise ValueError(f"timeout must be > 0 seconds, got {timeout}")
    given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
    start_seconds = _START_SECONDS + cold_start_seconds
    environment = function_environment(os.environ, threads, max(timeout, start_seconds))
    start = functools.partial(EmulatedProcess, find_emulator(os.environ), RUNTIME, given, environment)
    return Pool(workers, start, start_seconds)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """Create the sandboxes of a run from its settings (`catalogue.BackendEntry.invoker`)."""
    return emulated_functions(
        keys,
        workers=workers,
        timeout=tensor.deadline or LONGEST_CALL,
        link=Link(tensor.latency, tensor.bandwidth, tensor.latency_sigma),
        cold_start_seconds=tensor.cold_start,
    )
