"""Servers and workers that are threads and processes of one machine: what they share, and what of a call is left there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dorylax.clock.sharing import Speeds
from dorylax.cost.errors import check_bounds
from dorylax.cost.instance import Instance

PASSING, READING, TENSOR = range(3)
"""Kinds of uses of a machine's cores: in seconds of one thread, bytes that one reads, seconds of a tensor task's threads."""


@final
@dataclass(frozen=True)
class OneMachine:
    """How the parts of a run share one machine, which is what the cluster's graph server is.

    Attributes:
        tensor_threads: with how many threads a tensor task computes, ≥ 1.
        workers: processes for tensor tasks; 0: threads of servers do them, on rows where they lie.
        processes: whether servers are processes, and messages between them are copied.
        request_seconds: seconds that each request of a worker waits, its link being slowed down.
        graph_slowdown: how many times as long graph tasks take as was measured by themselves, but for what is around them.
        tensor_slowdown: likewise tensor tasks.
        message_wait: seconds until a message between processes gets its turn, at either end together.
        link_bandwidth: bytes per second of a worker's link, both ways together; 0: no limit.

    Raises:
        ClusterError: a value out of range.
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
        check_bounds(self, "tensor_threads", 1.0)
        for key in (
            "workers",
            "request_seconds",
            "link_bandwidth",
            "graph_slowdown",
            "tensor_slowdown",
            "message_wait",
        ):
            check_bounds(self, key, 0.0)


def cores(instance: Instance, tensor_threads: int) -> Speeds:
    """How fast all is that goes on, by kind: where there are more threads than cores, they take turns.

    Args:
        instance: the machine.
        tensor_threads: with how many a tensor task computes.
    """
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
