"""What a run costs: every server for as long as the run takes, functions by what they ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dorylax.cost.cluster import Cluster
from dorylax.cost.function import Function

_HOUR = 3600.0  # seconds


@final
@dataclass
class Calls:
    """Counts calls of functions. Whole numbers, so that the order in which calls end changes nothing.

    Attributes:
        requests: how many there were.
        milliseconds: what they are billed as in all, each rounded up.
    """

    requests: int = 0
    milliseconds: int = 0

    def add(self, seconds: float) -> None:
        """Counts a call, lost ones too.

        Args:
            seconds: how long it took, ≥ 0. The request's own time may be in it: an upper bound of what is billed.
        """
        self.requests += 1
        self.milliseconds += Function.billed_milliseconds(seconds)


@final
@dataclass(frozen=True)
class Bill:
    """Amounts, and US dollars for each.

    Attributes:
        graph_server_seconds, parameter_server_seconds: summed over the servers.
        gb_seconds: of functions: memory times time.
        requests: calls of functions.
        graph_servers, parameter_servers, function_time, function_requests: dollars for these, in this order.
    """

    graph_server_seconds: float
    parameter_server_seconds: float
    gb_seconds: float
    requests: int
    graph_servers: float
    parameter_servers: float
    function_time: float
    function_requests: float

    @classmethod
    def of(cls, cluster: Cluster, *, seconds: float, graph_servers: int, parameter_servers: int, calls: Calls) -> Bill:
        """Adds up.

        Servers are rented from the beginning to the end, whatever they do. (The paper leaves parameter servers out; this
        does not.)

        Args:
            cluster: what was rented.
            seconds: how long the run took.
            graph_servers: how many there were.
            parameter_servers: likewise.
            calls: what functions did.
        """
        graph_seconds, parameter_seconds = seconds * graph_servers, seconds * parameter_servers
        gb_seconds = calls.milliseconds / 1e3 * cluster.function.memory_mb / 1024
        return cls(
            graph_server_seconds=graph_seconds,
            parameter_server_seconds=parameter_seconds,
            gb_seconds=gb_seconds,
            requests=calls.requests,
            graph_servers=graph_seconds * cluster.graph_server.price / _HOUR,
            parameter_servers=parameter_seconds * cluster.parameter_server.price / _HOUR,
            function_time=gb_seconds * cluster.function.price_per_gb_second,
            function_requests=calls.requests * cluster.function.price_per_million_requests / 1e6,
        )

    @property
    def total(self) -> float:
        """US dollars in all."""
        return self.graph_servers + self.parameter_servers + self.function_time + self.function_requests

    def value(self, seconds: float) -> float | None:
        """Value, 1/(T·C) per second and dollar (Dorylus, OSDI '21, section 7); None where nothing was spent.

        Args:
            seconds: T, how long the run took.
        """
        return 1 / (seconds * self.total) if seconds * self.total > 0 else None
