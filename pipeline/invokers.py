"""Which pool of sandboxes a configuration asks for: one small function for each backend outside this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.config import LONGEST_CALL, BackendName, TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.data.server import DataServer


def make_invoker(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """The sandboxes of a run; `Invoker.close` ends them.

    Args:
        tensor: what is asked for; its backend is not "inline".
        keys: of the run.
        workers: how many sandboxes.

    Raises:
        ConfigError: the backend cannot be used on this machine.
    """
    return _INVOKERS[tensor.backend](tensor, keys, workers)


def make_data_server(tensor: TensorConfig, keys: RunKeys) -> DataServer:
    """The endpoints from which sandboxes fetch data."""
    if tensor.backend == "aws":
        assert tensor.host is not None
        return DataServer(keys, transport="tcp", host=tensor.host)
    return DataServer(keys, transport=tensor.transport)


# Imports are late: each backend needs packages of its own.


def _local(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    from dorylax.serverless.backends.local.pool import local_workers

    return local_workers(keys, workers=workers, link=_link(tensor), cold_start_seconds=tensor.cold_start)


def _emulator(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    from dorylax.serverless.backends.emulator.pool import emulated_functions

    return emulated_functions(
        keys,
        workers=workers,
        timeout=tensor.deadline or LONGEST_CALL,
        link=_link(tensor),
        cold_start_seconds=tensor.cold_start,
    )


def _aws(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    from dorylax.serverless.backends.aws.make import make_functions

    return make_functions(keys, function=tensor.function, region=tensor.region, calls=workers, deadline=tensor.deadline)


_INVOKERS: Mapping[BackendName, Callable[[TensorConfig, RunKeys, int], Invoker]] = {
    "local": _local,
    "emulator": _emulator,
    "aws": _aws,
}


def _link(tensor: TensorConfig) -> Link:
    return Link(tensor.latency, tensor.bandwidth)
