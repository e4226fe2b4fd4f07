"""Sandboxes of backends outside this process, and the endpoints that serve their data."""

from __future__ import annotations

import logging
from importlib import import_module

from dorylax.net.connections import AHEAD, Capacity, raise_limit
from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import node_address
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.catalogue import BACKENDS
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError

_FILES = 64
"""Files that a run may have open: its log, its checkpoints and descriptors of libraries. About 35 were observed."""

_OF_WORKER = 4
"""Descriptors per worker in addition to its connections: two pipes, and two more during its start."""

_OF_ENDPOINT = 4
"""Descriptors per endpoint in addition to its connections, for ZeroMQ."""

_LOG = logging.getLogger("dorylax.data")


def check_descriptors(tensor: TensorConfig, workers: int, *, servers: int, parameter_servers: int) -> None:
    """Raise the limit of open files and sockets as far as allowed, and check that it is enough for a run.

    Logs a warning if thousands of foreign connections could exhaust the descriptors for a moment.

    Args:
        tensor: Settings of tensor tasks.
        workers: Number of sandboxes.
        servers: Number of graph servers.
        parameter_servers: Number of parameter servers.

    Raises:
        ConfigError: The limit is too low.
    """
    # A worker has a connection to each server; with streaming, another one to each graph server prefetches half of the rows.
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
    """Create the sandboxes of a run; `Invoker.close` stops them.

    Args:
        tensor: Settings of tensor tasks; the backend is not "inline".
        keys: Keys of the run.
        workers: Number of sandboxes.
        ray: The Ray cluster and the resources per sandbox, for sandboxes on Ray.

    Raises:
        ConfigError: The backend cannot be used on this machine.
    """
    entry = BACKENDS[tensor.backend]
    assert entry.invoker is not None
    module, _, name = entry.invoker.partition(":")
    make = getattr(import_module(module), name)  # every backend has different dependencies
    invoker: Invoker = make(tensor, keys, workers, ray) if entry.on_ray else make(tensor, keys, workers)
    return invoker


def make_data_server(tensor: TensorConfig, keys: RunKeys) -> DataServer:
    """Create the endpoints that serve data to sandboxes; for sandboxes on other machines, at an address of this machine.

    The address is `tensor.host`, or else this node's address in the Ray cluster. The process is connected to the cluster
    already, either as a host there or by its sandboxes, which are created first.
    """
    if _elsewhere(tensor):
        return DataServer(keys, transport="tcp", host=tensor.host or node_address())
    return DataServer(keys, transport=tensor.transport)


def _elsewhere(tensor: TensorConfig) -> bool:
    """Return whether the sandboxes are on other machines."""
    return tensor.backend == "aws" or BACKENDS[tensor.backend].on_ray
