"""`emulated_functions`: a pool of sandboxes of AWS's Runtime Interface Emulator."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.emulator.environment import function_environment
from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.serverless.backends.emulator.process import EmulatedProcess
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.config import LONGEST_CALL, TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.handler.settings import JaxSetting, SandboxSettings

RUNTIME = (sys.executable, "-m", "awslambdaric", "dorylax.serverless.function.entry.handler")
"""The command of a function's image."""

_START_SECONDS = 120.0
"""For a sandbox to start, besides its cold start: it takes 1 to 2 on an idle machine."""


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
    """Calls the handler in functions that AWS's emulator runs on this machine; `Pool.pids` are those of their supervisors.

    Its ports are on loopback, where other users of the machine can reach them: it is for trials, not for secrets.

    Args:
        keys: of the run.
        workers: how many sandboxes, ≥ 1.
        timeout: the function's: seconds after which the emulator ends a call, > 0. Unlike Lambda, it counts the start of a
            runtime to the first call, and so gets no less than that may take; the `timeout` of `invoke` is exact.
        link: how much each one's network is slowed down; None: not at all.
        cold_start_seconds: added to the start of each, ≥ 0.
        threads: of XLA in each, ≥ 1.
        settings: of JAX in each, by name; None: those of this process (`jax_settings`).

    Raises:
        ValueError: a number out of range.
        ConfigError: the emulator or AWS's runtime is missing.
    """
    if not timeout > 0:
        raise ValueError(f"timeout must be > 0 seconds, got {timeout}")
    given = SandboxSettings(keys, link, cold_start_seconds, jax_settings() if settings is None else settings)
    start_seconds = _START_SECONDS + cold_start_seconds
    environment = function_environment(os.environ, threads, max(timeout, start_seconds))
    start = functools.partial(EmulatedProcess, find_emulator(os.environ), RUNTIME, given, environment)
    return Pool(workers, start, start_seconds)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """The sandboxes of a run (`catalogue.BackendEntry.invoker`)."""
    return emulated_functions(
        keys,
        workers=workers,
        timeout=tensor.deadline or LONGEST_CALL,
        link=Link(tensor.latency, tensor.bandwidth, tensor.latency_sigma),
        cold_start_seconds=tensor.cold_start,
    )
