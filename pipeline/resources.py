"""Numbers of threads, slots and processes of a run: configured, or derived from this machine or the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from dorylax.cost import Cluster
from dorylax.machine import cores
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.cluster import nodes_of
from dorylax.ray_cluster.connection import connected

_FUNCTIONS = 100
"""Default concurrency of AWS Lambda, the initial value of Dorylus (OSDI '21, section 6)."""


# Peak threads of a run on tiny data, for XLA, checkpoint storage and Python: 24 on one core and 31 on two, 5 more with a
# pipeline; 17 and 19 in each worker process. With one thread fewer, XLA aborts. A host, which stores no JAX arrays, has 22
# with one XLA thread and 24 with two, plus those of its servers. A driver connected to a Ray cluster has 23 more.
_THREADS, _THREADS_PER_CORE = 20, 8
_WORKER_THREADS, _WORKER_THREADS_PER_CORE = 18, 2
_PIPELINE_THREADS = 4
_HOST_THREADS, _HOST_THREADS_PER_CORE = 20, 2
_RAY_THREADS = 30


class Resources(NamedTuple):
    """Degrees of concurrency.

    Attributes:
        graph_threads: Concurrent graph tasks per server.
        slots: Concurrent tensor tasks per server.
        workers: Processes or functions for tensor tasks of all servers; 0 without workers.
    """

    graph_threads: int
    slots: int
    workers: int

    @classmethod
    def of(cls, config: PipelineConfig, cluster: Cluster | None, cores: int) -> Resources:
        """Return the resources of a configuration.

        Local worker processes and the servers' threads together equal the number of cores. Inline, a server uses its share
        of the cores for both kinds of tasks, because its tensor tasks mostly wait for its gathers.

        Args:
            config: Settings of the pipeline.
            cluster: Cluster of the virtual clock; None on the real clock.
            cores: Cores available to this process.
        """
        tensor = config.tensor
        if cluster is not None:
            slots = tensor.slots or max(1, cluster.functions)  # unused without functions
            return cls(config.graph_threads or cluster.graph_server.tasks, slots, 0)
        usual = _FUNCTIONS if tensor.backend == "aws" else max(1, cores // 2)
        workers = 0 if tensor.backend == "inline" else tensor.workers or usual
        # More workers than cores simulate functions that wait for the network. Workers on Ray have separate CPUs.
        elsewhere = tensor.backend == "ray" or workers >= cores
        rest = cores if elsewhere else cores - workers
        threads = config.graph_threads or max(1, rest // config.servers)
        slots = tensor.slots or max(1, -(-workers // config.servers) if workers else cores // config.servers)
        return cls(threads, slots, workers)

    @classmethod
    def of_host(cls, config: PipelineConfig, cores: int) -> Resources:
        """Return the resources of one graph server in a host.

        Args:
            config: Settings of the pipeline.
            cores: Cores available to the process: all of this machine, or its share on a Ray cluster.
        """
        together = cls.of(config, None, cores * graph_hosts(config) if config.hosts == "ray" else cores)
        return together._replace(workers=-(-together.workers // config.servers))


def most_threads(config: PipelineConfig | None) -> int:
    """Return the peak number of threads of a run, including its worker processes.

    Args:
        config: Settings of the pipeline; None for one machine.
    """
    here = cores()
    most = _THREADS + _THREADS_PER_CORE * here
    if config is None:
        return most
    most += _PIPELINE_THREADS
    if config.clock == "virtual":  # threads of servers are simulated
        return most
    if config.hosts == "ray":  # only the driver is here
        return most + _RAY_THREADS
    if config.hosts == "processes":
        return most + _threads_of_hosts(config, here)
    found = Resources.of(config, None, here)
    most += config.servers * (found.graph_threads + found.slots) + found.workers
    processes = 0 if config.tensor.backend in ("aws", "ray") else found.workers
    return most + processes * (_WORKER_THREADS + _WORKER_THREADS_PER_CORE * here)


def graph_hosts(config: PipelineConfig) -> int:
    """Return the number of hosts with graph servers."""
    return min(config.servers, config.num_hosts or config.servers)


def cores_of_host(config: PipelineConfig, cores: int) -> int:
    """Return the cores of a host; arguments as for `Resources.of_host`."""
    return cores if config.hosts == "ray" else max(1, cores // graph_hosts(config))


def _threads_of_hosts(config: PipelineConfig, cores: int) -> int:
    """Return the threads of all hosts on this machine and of their worker processes."""
    found = Resources.of_host(config, cores)
    hosts = config.num_hosts or config.servers + config.parameter_servers
    most = hosts * (_HOST_THREADS + _HOST_THREADS_PER_CORE * cores_of_host(config, cores))
    processes = 0 if config.tensor.backend == "aws" else found.workers
    # A graph server has one thread for files; workers have one listener each and two shared ones.
    each = found.graph_threads + found.slots + 2 + (found.workers + 2 if found.workers else 0)
    each += processes * (_WORKER_THREADS + _WORKER_THREADS_PER_CORE * cores)
    return most + config.servers * each + config.parameter_servers


def shares(room: int, servers: int) -> list[int]:
    """Divide concurrent calls among servers as evenly as possible, at least one each.

    Args:
        room: Number of concurrent calls, ≥ 0.
        servers: Number of servers, ≥ 1.
    """
    return [max(1, room // servers + (server < room % servers)) for server in range(servers)]


@contextlib.contextmanager
def on_cluster(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Connect this process to the Ray cluster of a run; without servers or workers on Ray, do nothing.

    Args:
        config: Settings of the pipeline.

    Yields:
        The configuration with the address of the cluster, so that all processes of the run connect to the same one, and
        with the number of workers if none is configured.

    Raises:
        ConfigError: Ray is not installed, or the cluster does not exist.
    """
    if not config.on_ray:
        yield config
        return
    with connected(config.ray) as ray:
        address = ray.get_runtime_context().gcs_address
        decided = config.model_copy(update={"ray": config.ray.model_copy(update={"address": address})})
        if config.tensor.backend == "ray" and config.tensor.workers is None:
            cpus = sum(node.cpus for node in nodes_of(ray))
            tensor = config.tensor.model_copy(update={"workers": usual_workers(config, cpus)})
            decided = decided.model_copy(update={"tensor": tensor})
        yield decided


def usual_workers(config: PipelineConfig, cpus: int) -> int:
    """Return the number of workers that use half of a cluster, or the CPUs left by servers if fewer.

    With hosts outside this process, the number is a multiple of the number of servers if possible.

    Args:
        config: Settings of the pipeline.
        cpus: Total CPUs of all nodes.
    """
    room = cpus / 2
    if config.hosts == "ray" and config.ray.cpus is not None:
        room = min(room, cpus - config.ray.cpus * (config.num_hosts or config.servers + config.parameter_servers))
    workers = int(room / (config.ray.worker_cpus or 1.0))
    if config.hosts != "inline":
        workers = workers // config.servers * config.servers
    return max(1, workers)


def cpus_of_workers(config: PipelineConfig) -> float:
    """Return the number of cluster CPUs used by the workers of all hosts; 0 if workers do not run on Ray.

    Args:
        config: Settings of the pipeline, as yielded by `on_cluster`.
    """
    if config.tensor.backend != "ray":
        return 0.0
    assert config.tensor.workers is not None
    of_each = -(-config.tensor.workers // config.servers)
    return of_each * config.servers * config.ray.worker_cpus
