"""How many threads, slots and processes a pipeline uses: what is given, or this machine's cores, or the cluster's."""

from __future__ import annotations

import os
from typing import NamedTuple

from dorylax.cost import Cluster
from dorylax.pipeline.config import PipelineConfig

_FUNCTIONS = 100
"""Of AWS Lambda at a time: with what Dorylus begins (OSDI '21, section 6)."""


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

        Worker processes and the servers' threads together are as many as there are cores. Inline, a server has its share of
        the cores for either kind of task: its tensor tasks wait for its gathers more often than they run beside them.

        Args:
            config: of the pipeline.
            cluster: what the virtual clock stands for; None on the real one.
            cores: that this process may use.
        """
        tensor = config.tensor
        if cluster is not None:
            return cls(config.graph_threads or cluster.graph_server.threads, tensor.slots or cluster.functions, 0)
        usual = _FUNCTIONS if tensor.backend == "aws" else max(1, cores // 2)
        workers = 0 if tensor.backend == "inline" else tensor.workers or usual
        # More workers than cores stand for functions that mostly wait for the network.
        rest = cores if workers == 0 or workers >= cores else cores - workers
        threads = config.graph_threads or max(1, rest // config.servers)
        slots = tensor.slots or max(1, -(-workers // config.servers) if workers else cores // config.servers)
        return cls(threads, slots, workers)


def shares(room: int, servers: int) -> list[int]:
    """How many of the calls that can run at a time each server may begin: as equal as can be, and one at least.

    Args:
        room: calls at a time, ≥ 0.
        servers: how many there are, ≥ 1.
    """
    return [max(1, room // servers + (server < room % servers)) for server in range(servers)]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
