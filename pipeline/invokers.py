"""The sandboxes of a backend outside this process, and the endpoints from which they fetch data."""

from __future__ import annotations

import logging
from importlib import import_module

from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import node_address
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.catalogue import BACKENDS
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.connections import AHEAD, Capacity, raise_limit
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer
from dorylax.settings.errors import ConfigError

_FILES = 64
"""That a run has open at a time, its log, checkpoints and libraries' own descriptors among them; about 35 were seen."""

_OF_WORKER = 4
"""Descriptors of a worker, besides its connections: two pipes, and as many while it starts."""

_OF_ENDPOINT = 4
"""Descriptors of an endpoint, besides its connections: ZeroMQ's."""

_LOG = logging.getLogger("dorylax.data")


def check_descriptors(tensor: TensorConfig, workers: int, *, servers: int, parameter_servers: int) -> None:
    """Raises the limit of open files and sockets as far as it may, and checks that a run has enough.

    Warns where strangers who connect by the thousand may use them up for a moment.

    Args:
        tensor: what is asked for.
        workers: how many sandboxes.
        servers: graph servers.
        parameter_servers: parameter servers.

    Raises:
        ConfigError: it has not.
    """
    # A worker keeps a connection to each, and one more for the half of the rows that it fetches ahead.
    connections = workers * (servers * (2 if tensor.streaming else 1) + parameter_servers)
    others = _FILES + _OF_WORKER * workers + _OF_ENDPOINT * (servers + parameter_servers)
    limit = enough = raise_limit()
    while (capacity := Capacity.of(enough)).peers < connections or capacity.others < others:
        enough *= 2
    if enough > limit:
        raise ConfigError.of(
            "tensor.workers",
            f"= {workers} needs {connections} connections and {others} other descriptors; this process may have {limit} "
            f"in all, half of them for connections: allow it more (ulimit -n {enough}), or use fewer workers or servers",
        )
    flooded = connections + others + capacity.strangers + AHEAD * (servers + parameter_servers)
    if flooded > limit and (tensor.transport == "tcp" or _elsewhere(tensor)):
        _LOG.warning(
            "this process may have %d files and sockets open: strangers who connect by the thousand may use them up for a "
            "moment, which may end the run; %d would do (ulimit -n)",
            limit,
            flooded,
        )


def make_invoker(tensor: TensorConfig, keys: RunKeys, workers: int, ray: RayConfig) -> Invoker:
    """The sandboxes of a run; `Invoker.close` ends them.

    Args:
        tensor: what is asked for; its backend is not "inline".
        keys: of the run.
        workers: how many sandboxes.
        ray: of those that live on a Ray cluster: which, and what to ask it for.

    Raises:
        ConfigError: the backend cannot be used on this machine.
    """
    entry = BACKENDS[tensor.backend]
    assert entry.invoker is not None
    module, _, name = entry.invoker.partition(":")
    make = getattr(import_module(module), name)  # each needs packages of its own
    invoker: Invoker = make(tensor, keys, workers, ray) if entry.on_ray else make(tensor, keys, workers)
    return invoker


def make_data_server(tensor: TensorConfig, keys: RunKeys) -> DataServer:
    """The endpoints from which sandboxes fetch data: at an address of this machine, where they are on others.

    Where that is not given, it is the one of this node of a Ray cluster, to which the process is connected: by its
    sandboxes, which are made first, or as a host there.
    """
    if _elsewhere(tensor):
        return DataServer(keys, transport="tcp", host=tensor.host or node_address())
    return DataServer(keys, transport=tensor.transport)


def _elsewhere(tensor: TensorConfig) -> bool:
    """Whether sandboxes are on other machines."""
    return tensor.backend == "aws" or BACKENDS[tensor.backend].on_ray
