"""Shared resources of the servers of a run on one virtual clock, made on first use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal, final

from dorylax.clock import Shared, VirtualClock
from dorylax.clock.sharing import Speeds
from dorylax.cost.cluster import Cluster
from dorylax.cost.function import Function
from dorylax.cost.instance import Instance

Place = tuple[str, int]
"""A server: its kind, "graph" or "parameter", and its number among that kind, from 0."""

MESSAGES, FUNCTIONS = range(2)
"""Kinds of uses of a network."""

_REMEMBERED = 2**14
"""Size of the cache of speeds by numbers of tasks, which recur."""


def network(bandwidth: float, function: Function, peers: int) -> Speeds:
    """One direction of a server's network: equal shares for connections, limited by the bandwidth of functions.

    All messages to one of the `peers` (≥ 1) other servers share a connection; each function, of the kind `FUNCTIONS`, has a
    separate one. `bandwidth` is in bytes per second.
    """

    def speeds(counts: Sequence[int]) -> tuple[float, float]:
        messages, functions = counts
        share = bandwidth / max(1, min(messages, peers) + functions)
        of_functions = min(share, function.bandwidth_among(max(1, functions)))
        return (bandwidth - functions * of_functions) / max(1, messages), of_functions

    return speeds


def memory(instance: Instance) -> Speeds:
    """Bytes per second of each thread that reads along edges."""
    total = instance.total_memory_bandwidth

    def speeds(counts: Sequence[int]) -> tuple[float]:
        busy = max(1, counts[0])
        own = instance.memory_bandwidth * instance.lift(busy)
        return (min(own, total / busy) if total else own,)

    return speeds


@final
class WarmPool:
    """The environments of a graph server's functions. The last used one is used first, so that others may end.

    Args:
        keep_warm: Seconds that an idle environment is kept.
    """

    def __init__(self, keep_warm: float) -> None:
        self._keep_warm = keep_warm
        self._idle: list[float] = []  # since when, ascending

    def begin(self, now: float) -> bool:
        """Begin a call; return whether it starts a new environment."""
        if self._idle and now - self._idle[-1] <= self._keep_warm:
            self._idle.pop()
            return False
        self._idle.clear()  # all others have waited longer
        return True

    def end(self, now: float) -> None:
        """End a call; times are monotonic."""
        self._idle.append(now)

    def state(self) -> list[float]:
        """Times since which environments are idle, for a checkpoint between calls."""
        return list(self._idle)

    def restore(self, state: list[float]) -> None:
        """Restore the result of `state`."""
        self._idle = [float(since) for since in state]


@final
class Machines:
    """Resources shared by tasks on a cluster with contention, which has so many servers of both kinds."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, servers: int) -> None:
        self._cluster, self._clock, self._peers = cluster, clock, max(1, servers - 1)
        self._made: dict[tuple[str, Place], Shared] = {}
        self._speeds: dict[tuple[str, str], Speeds] = {}  # servers of a kind are alike
        self._pools: dict[int, WarmPool] = {}

    def instance(self, place: Place) -> Instance:
        """Type of a server."""
        return self._cluster.graph_server if place[0] == "graph" else self._cluster.parameter_server

    def between(self, sender: Place, receiver: Place) -> tuple[tuple[Shared, ...], float]:
        """Resources that a message uses simultaneously, and its bytes per second without other traffic."""
        ways, speeds = [self.network("out", sender), self.network("into", receiver)], []
        for place, way in ((sender, self.pcie("out", sender)), (receiver, self.pcie("into", receiver))):
            instance = self.instance(place)
            speeds.append(instance.network_bandwidth)
            if way is not None and instance.gpu is not None:
                ways.append(way)
                speeds.append(instance.gpu.pcie_bandwidth)
        return tuple(ways), min(speeds)

    def network(self, way: Literal["out", "into"], place: Place) -> Shared:
        """A server's network on the way out or in; kinds are `MESSAGES` and `FUNCTIONS`."""
        bandwidth, function = self.instance(place).network_bandwidth, self._cluster.function
        return self.shared(way, place, lambda: network(bandwidth, function, self._peers), kinds=2)

    def cores(self, place: Place) -> Shared:
        """A server's cores, in floating-point operations per second of each thread that computes."""
        one = self.instance(place)
        return self.shared("cores", place, lambda: lambda counts: (one.flops * one.lift(max(1, counts[0])),))

    def memory(self, place: Place) -> Shared:
        """A server's memory."""
        return self.shared("memory", place, lambda: memory(self.instance(place)))

    def pcie(self, way: Literal["out", "into"], place: Place) -> Shared | None:
        """One direction between a server and its GPU; None without a GPU."""
        if (gpu := self.instance(place).gpu) is None:
            return None
        return self.shared(f"pcie {way}", place, lambda: lambda counts: (gpu.pcie_bandwidth / max(1, counts[0]),))

    @property
    def passing(self) -> Shared:
        """Serves one second per second to each user: time that passes during a part that shares resources."""
        return self.shared("seconds", ("function", 0), lambda: lambda _: (1.0,))

    def environments(self, server: int) -> WarmPool:
        """The environments of a graph server's functions."""
        return self._pools.setdefault(server, WarmPool(self._cluster.function.keep_warm))

    def shared(self, what: str, place: Place, speeds: Callable[[], Speeds], *, kinds: int = 1) -> Shared:
        """A resource of a server by its name, with so many kinds of uses; `speeds` makes its speeds on first use."""
        found = self._made.get((what, place))
        if found is None:
            key = (what, place[0])
            if key not in self._speeds:
                self._speeds[key] = functools.lru_cache(_REMEMBERED)(speeds())
            found = self._made[what, place] = self._clock.shared(self._speeds[key], kinds)
        return found
