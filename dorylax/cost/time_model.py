"""How long tasks take on a cluster: the seconds that the virtual clock is told."""

from __future__ import annotations

from typing import final

from dorylax.cost.cluster import Cluster

Amount = float | int  # bytes and operations are counted

# Adam reads gradient, parameters and two moments, and writes the latter three: 7 passes over memory. Assumption: as many
# whatever the optimizer.
_UPDATE_PASSES = 7


@final
class TimeModel:
    """Durations of tasks: a fixed part, plus work over speed, plus bytes over bandwidth, times a random factor.

    The parts are added: none overlaps another within a task. Tasks on one server do not slow each other down except by
    waiting for threads, and messages do not share the network: a task or message has its thread's or server's whole
    speed.

    The random factor (`Variation`) is a pure function of the seed, the kind of task and its key: equal keys give equal
    durations whenever and however often they are asked for. Every task needs its own key, a retry of one too.

    Args:
        cluster: what the tasks run on.
        seed: of the run.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed

    def graph_task(self, key: tuple[int, ...], *, flops: Amount, bytes: Amount) -> float:
        """Seconds that one thread of a graph server needs.

        Args:
            key: which task it is.
            flops: its floating-point operations, ≥ 0.
            bytes: what it reads along edges and writes, ≥ 0.

        Raises:
            ValueError: a negative amount.
        """
        _check(flops=flops, bytes=bytes)
        server = self.cluster.graph_server
        median = server.overhead + flops / server.flops + bytes / server.memory_bandwidth
        return median * server.variation.factor(self.seed, "graph", key)

    def tensor_task(self, key: tuple[int, ...], *, flops: Amount, bytes_in: Amount, bytes_out: Amount) -> float:
        """Seconds that one function needs, from the request to the answer.

        Args:
            key: which task it is.
            flops: its floating-point operations, ≥ 0.
            bytes_in: what it fetches (rows, parameters), ≥ 0.
            bytes_out: what it returns (rows, gradients), ≥ 0.

        Raises:
            ValueError: a negative amount.
        """
        _check(flops=flops, bytes_in=bytes_in, bytes_out=bytes_out)
        function = self.cluster.function
        median = (
            function.overhead
            + (bytes_in + bytes_out) / function.network_bandwidth
            + flops / (function.flops * function.virtual_cpus)
        )
        return median * function.variation.factor(self.seed, "tensor", key)

    def message(self, key: tuple[int, ...], *, bytes: Amount) -> float:
        """Seconds until a message between servers has arrived.

        Args:
            key: which message it is.
            bytes: how long it is, ≥ 0.

        Raises:
            ValueError: a negative amount.
        """
        _check(bytes=bytes)
        server = self.cluster.graph_server
        median = self.cluster.latency + bytes / server.network_bandwidth
        return median * server.variation.factor(self.seed, "message", key)

    def update(self, key: tuple[int, ...], *, bytes: Amount) -> float:
        """Seconds of an optimizer step on one thread of a parameter server.

        Args:
            key: which step it is.
            bytes: the size of the parameters, ≥ 0.

        Raises:
            ValueError: a negative amount.
        """
        _check(bytes=bytes)
        server = self.cluster.parameter_server
        median = server.overhead + _UPDATE_PASSES * bytes / server.memory_bandwidth
        return median * server.variation.factor(self.seed, "update", key)


def _check(**amounts: Amount) -> None:
    for name, amount in amounts.items():
        if not amount >= 0:
            raise ValueError(f"{name} must be ≥ 0, got {amount}")
