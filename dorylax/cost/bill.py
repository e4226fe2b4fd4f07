"""The cost of a run: servers by the duration of the run, functions by their calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dorylax.cost.cluster import Cluster
from dorylax.cost.function import Function

_HOUR = 3600.0  # seconds


@final
@dataclass
class Calls:
    """Counts of calls of functions, in whole numbers, so that the order of calls does not matter.

    Attributes:
        requests: Number of calls.
        milliseconds: Billed milliseconds of all calls, each rounded up.
    """

    requests: int = 0
    milliseconds: int = 0

    def add(self, seconds: float) -> None:
        """Count a call, even if it is lost; its seconds (≥ 0) are an upper bound of the billed time."""
        self.requests += 1
        self.milliseconds += Function.billed_milliseconds(seconds)


@final
@dataclass(frozen=True)
class Bill:
    """Amounts, and US dollars for each.

    Attributes:
        graph_server_seconds, parameter_server_seconds: Seconds, summed over the servers.
        gb_seconds: Memory times time of functions.
        requests: Number of calls of functions.
        graph_servers, parameter_servers, function_time, function_requests: Dollars for these, in this order.
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
        """The bill of a run with so many servers, rented for the whole run; the paper omits parameter servers."""
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
        """Sum in US dollars."""
        return self.graph_servers + self.parameter_servers + self.function_time + self.function_requests

    def value(self, seconds: float) -> float | None:
        """Value, 1/(T·C) per second and dollar (Dorylus, OSDI '21, section 7); None for a run without cost.

        Args:
            seconds: T, the duration of the run.
        """
        return 1 / (seconds * self.total) if seconds * self.total > 0 else None
