"""Which pool of sandboxes a configuration asks for: one small function for each backend outside this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.config import BackendName, TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link

DEADLINE = 900.0
"""Seconds that AWS Lambda lets a function run at most (AWS's documentation, July 2026)."""


def make_invoker(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """The sandboxes of a run; `Invoker.close` ends them.

    Args:
        tensor: what is asked for; its backend is not "inline".
        keys: of the run.
        workers: how many sandboxes.

    Raises:
        TensorConfigError: the backend cannot be used on this machine.
    """
    return _INVOKERS[tensor.backend](tensor, keys, workers)


# Imports are late: each backend needs packages of its own.


def _local(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    from dorylax.serverless.backends.local.pool import LocalWorkers

    return LocalWorkers(keys, workers=workers, link=_link(tensor), cold_start_seconds=tensor.cold_start)


def _emulator(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    from dorylax.serverless.backends.emulator.pool import EmulatedFunctions

    return EmulatedFunctions(
        keys,
        workers=workers,
        timeout=tensor.deadline or DEADLINE,
        link=_link(tensor),
        cold_start_seconds=tensor.cold_start,
    )


_INVOKERS: Mapping[BackendName, Callable[[TensorConfig, RunKeys, int], Invoker]] = {
    "local": _local,
    "emulator": _emulator,
}


def _link(tensor: TensorConfig) -> Link:
    return Link(tensor.latency, tensor.bandwidth)
