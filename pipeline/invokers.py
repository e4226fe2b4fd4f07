"""The sandboxes of a backend outside this process, and the endpoints from which they fetch data."""

from __future__ import annotations

from importlib import import_module

from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.catalogue import BACKENDS
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.keys import RunKeys
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
    reference = BACKENDS[tensor.backend].invoker
    assert reference is not None
    module, _, name = reference.partition(":")
    invoker: Invoker = getattr(import_module(module), name)(tensor, keys, workers)  # each needs packages of its own
    return invoker


def make_data_server(tensor: TensorConfig, keys: RunKeys) -> DataServer:
    """The endpoints from which sandboxes fetch data: at an address of this machine, where they are on others."""
    if tensor.host is not None:
        return DataServer(keys, transport="tcp", host=tensor.host)
    return DataServer(keys, transport=tensor.transport)
