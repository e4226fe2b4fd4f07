"""Resources shared by servers and workers that are threads and processes of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dorylax.clock.sharing import Speeds
from dorylax.cost.bounds import check_bounds
from dorylax.cost.instance import Instance

PASSING, READING, TENSOR = range(3)
"""Kinds of uses of a machine's cores: seconds of a thread, bytes that it reads, seconds of a tensor task's threads."""


@final
@dataclass(frozen=True)
class OneMachine:
    """The division of one machine, the cluster's graph server, among the parts of a run.

    Attributes:
        tensor_threads: Threads of a tensor task (≥ 1).
        workers: Processes for tensor tasks; 0 if threads of servers run them on rows in place.
        processes: Whether servers are processes, which copy messages.
        request_seconds: Artificial delay of each request of a worker, in seconds.
        graph_slowdown: Ratio of the time of graph tasks to that of the same work alone, without task overhead.
        tensor_slowdown: The same ratio for tensor tasks.
        message_wait: Seconds until a message between processes is handled, at both ends together.
        link_bandwidth: Bytes per second of a worker's link in both directions together; 0 for no limit.

    Raises:
        ConfigError: A value is out of range.
    """

    tensor_threads: int
    workers: int = 0
    processes: bool = False
    request_seconds: float = 0.0
    link_bandwidth: float = 0.0
    graph_slowdown: float = 1.0
    tensor_slowdown: float = 1.0
    message_wait: float = 0.0

    def __post_init__(self) -> None:
        check_bounds(self, 1.0, "tensor_threads")
        check_bounds(self, 0.0, "workers", "request_seconds", "link_bandwidth")
        check_bounds(self, 0.0, "graph_slowdown", "tensor_slowdown", "message_wait")


def cores(instance: Instance, tensor_threads: int) -> Speeds:
    """Speeds by kind of use, for tensor tasks of so many threads each. More threads than cores take turns."""
    total = instance.total_memory_bandwidth

    def speeds(counts: Sequence[int]) -> tuple[float, float, float]:
        _, reading, tensor = counts
        threads = max(1, sum(counts) + (tensor_threads - 1) * tensor)
        busy = min(threads, instance.threads)
        share = instance.lift(busy) / instance.lift(1) * busy / threads
        read = instance.memory_bandwidth * instance.lift(1) * share
        if total and reading:
            read = min(read, total / reading)
        return share, read, share

    return speeds
