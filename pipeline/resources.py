"""How many threads, slots and processes a run uses: what is given, or this machine's cores, or the cluster's."""

from __future__ import annotations

from typing import NamedTuple

from dorylax.cost import Cluster
from dorylax.machine import cores
from dorylax.pipeline.config import PipelineConfig

_FUNCTIONS = 100
"""Of AWS Lambda at a time: with what Dorylus begins (OSDI '21, section 6)."""


# Threads that a run on tiny data has at its peak, of XLA, of the storage of checkpoints, and of Python: 24 on one core and
# 31 on two, 5 more with a pipeline; in each worker process 17 and 19. One fewer is an abort inside XLA. A host, which stores
# no arrays of JAX, has 22 where XLA computes with one, and 24 where with two, besides those of its servers. A driver that is
# connected to a Ray cluster has 23 more.
_THREADS, _THREADS_PER_CORE = 20, 8
_WORKER_THREADS, _WORKER_THREADS_PER_CORE = 18, 2
_PIPELINE_THREADS = 4
_HOST_THREADS, _HOST_THREADS_PER_CORE = 20, 2
_RAY_THREADS = 30


class Resources(NamedTuple):
    """What runs at a time.

    Attributes:
        graph_threads: graph tasks of each server.
        slots: tensor tasks of each server.
        workers: processes or functions for tensor tasks, of all servers together; 0 where there are none.
    """

    graph_threads: int
    slots: int
    workers: int

    @classmethod
    def of(cls, config: PipelineConfig, cluster: Cluster | None, cores: int) -> Resources:
        """What a configuration asks for.

        Worker processes of this machine and the servers' threads together are as many as there are cores. Inline, a server
        has its share of the cores for either kind of task: its tensor tasks wait for its gathers more often than they run
        beside them.

        Args:
            config: of the pipeline.
            cluster: what the virtual clock stands for; None on the real one.
            cores: that this process may use.
        """
        tensor = config.tensor
        if cluster is not None:
            slots = tensor.slots or max(1, cluster.functions)  # without functions nobody asks for one
            return cls(config.graph_threads or cluster.graph_server.tasks, slots, 0)
        usual = _FUNCTIONS if tensor.backend == "aws" else max(1, cores // 2)
        workers = 0 if tensor.backend == "inline" else tensor.workers or usual
        # More workers than cores stand for functions that mostly wait for the network; those on Ray have CPUs of their own.
        elsewhere = tensor.backend == "ray" or workers >= cores
        rest = cores if elsewhere else cores - workers
        threads = config.graph_threads or max(1, rest // config.servers)
        slots = tensor.slots or max(1, -(-workers // config.servers) if workers else cores // config.servers)
        return cls(threads, slots, workers)

    @classmethod
    def of_host(cls, config: PipelineConfig, cores: int) -> Resources:
        """What one graph server has in a process of its own, or in one that it shares with others.

        Args:
            config: of the pipeline.
            cores: that the process may use: all of this machine, or, on a Ray cluster, its share.
        """
        together = cls.of(config, None, cores * graph_hosts(config) if config.hosts == "ray" else cores)
        return together._replace(workers=-(-together.workers // config.servers))


def most_threads(config: PipelineConfig | None) -> int:
    """How many threads a run may have at a time, with those of its worker processes.

    Args:
        config: of its pipeline; None where one machine trains.
    """
    here = cores()
    most = _THREADS + _THREADS_PER_CORE * here
    if config is None:
        return most
    most += _PIPELINE_THREADS
    if config.clock == "virtual":  # all its threads of servers are simulated
        return most
    if config.hosts == "ray":  # all but the driver are on nodes
        return most + _RAY_THREADS
    if config.hosts == "processes":
        return most + _threads_of_hosts(config, here)
    found = Resources.of(config, None, here)
    most += config.servers * (found.graph_threads + found.slots) + found.workers
    processes = 0 if config.tensor.backend in ("aws", "ray") else found.workers
    return most + processes * (_WORKER_THREADS + _WORKER_THREADS_PER_CORE * here)


def graph_hosts(config: PipelineConfig) -> int:
    """In how many hosts graph servers live."""
    return min(config.servers, config.num_hosts or config.servers)


def cores_of_host(config: PipelineConfig, cores: int) -> int:
    """How many cores are a host's; arguments as of `Resources.of_host`."""
    return cores if config.hosts == "ray" else max(1, cores // graph_hosts(config))


def _threads_of_hosts(config: PipelineConfig, cores: int) -> int:
    """Those of all hosts on this machine, with those of their worker processes."""
    found = Resources.of_host(config, cores)
    hosts = config.num_hosts or config.servers + config.parameter_servers
    most = hosts * (_HOST_THREADS + _HOST_THREADS_PER_CORE * cores_of_host(config, cores))
    processes = 0 if config.tensor.backend == "aws" else found.workers
    # Of a graph server also one for its files, and of workers one that listens to each, and two to all.
    each = found.graph_threads + found.slots + 2 + (found.workers + 2 if found.workers else 0)
    each += processes * (_WORKER_THREADS + _WORKER_THREADS_PER_CORE * cores)
    return most + config.servers * each + config.parameter_servers


def shares(room: int, servers: int) -> list[int]:
    """How many of the calls that can run at a time each server may begin: as equal as can be, and one at least.

    Args:
        room: calls at a time, ≥ 0.
        servers: how many there are, ≥ 1.
    """
    return [max(1, room // servers + (server < room % servers)) for server in range(servers)]
