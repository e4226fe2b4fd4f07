"""Clusters: types of servers and functions. The pipeline decides on the number of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from dorylax.cost.fields import NotNegative, part
from dorylax.cost.function import Function
from dorylax.cost.instance import INSTANCES, Instance
from dorylax.cost.measured import Measured
from dorylax.cost.variation import Variation
from dorylax.settings.section import Fraction, Positive

_MEGABIT = 1e6 / 8  # bytes


@part
class Cluster:
    """The rented machines of a pipeline.

    Attributes:
        name: Name of the cluster.
        graph_server: Type of the graph servers.
        parameter_server: Type of the parameter servers.
        function: Type of the functions that run tensor tasks.
        functions: Maximum number of concurrent functions per graph server; 0: servers run all tasks.
        latency: Seconds until the first byte of a message between servers arrives.
        prices_as_of: Year and month of the prices, for readers of a bill.
        contention: Whether tasks slow each other down: messages and functions on a server's network, threads on its cores
            and its memory, functions among themselves; and whether functions start cold.
        measured: Measurements of its machine; None without any.
        pause: Seconds in which a straggling graph server computes nothing, before an epoch.
        pause_probability: Probability that a graph server straggles in an epoch, in [0, 1).

    Raises:
        ConfigError: A value is out of range.
    """

    name: str
    graph_server: Instance
    parameter_server: Instance
    function: Function
    functions: Annotated[int, Field(ge=0)]
    latency: Positive
    prices_as_of: str = "2026-07"
    contention: bool = False
    measured: Measured | None = None
    pause: NotNegative = 0.0
    pause_probability: Fraction = 0.0

    @property
    def ships(self) -> bool:
        """Whether the rows of tensor tasks travel to workers and back."""
        return self.functions > 0


def clusters() -> Mapping[str, Cluster]:
    """The known clusters by name: "default", and those of the paper's evaluation ("gcn-amazon", …)."""
    return _CLUSTERS


_FUNCTION = Function(
    memory_mb=1769,
    # Assumption: a virtual CPU of a function is one of a server.
    flops=INSTANCES["c5n.2xlarge"].flops,
    # Assumption, since AWS says nothing: between the 800 Mbit/s of one function and the 200 of one among 100 that the paper
    # measured (2021), their geometric mean.
    network_bandwidth=400 * _MEGABIT,
    # Assumption: a few times the 2.0 ms (99th percentile 7.9) that a warm call takes on AWS's local emulator (measured).
    overhead=10e-3,
    # AWS Lambda, us-east-1, x86, July 2026.
    price_per_gb_second=0.0000166667,
    price_per_million_requests=0.20,
    # Assumption: functions share machines with others'. Five times the mean is when the paper gives a function up.
    variation=Variation(sigma=0.25, straggler_probability=0.01, straggler_factor=5.0),
    # Measured in the paper (2021): 800 Mbit/s alone, 200 among 100. A power law between: assumption.
    lone_bandwidth=800 * _MEGABIT,
    crowding=0.30103,  # log of 800 / 200 to the base 100
    # The first call of a function with JAX takes 1.1 to 1.6 s on AWS's local emulator (measured).
    cold_start=1.4,
    keep_warm=600.0,  # assumption: AWS says nothing; minutes have been observed
)
DEFAULT_CLUSTER = Cluster(
    name="default",
    graph_server=INSTANCES["c5n.2xlarge"],
    parameter_server=INSTANCES["c5.xlarge"],
    function=_FUNCTION,
    functions=100,  # where the paper's autotuner starts, if there are as many intervals
    latency=200e-6,  # assumption: within one availability zone
)
"""A small one: what the pipeline runs on unless told otherwise."""

# The paper's functions: 192 MB, about 0.11 virtual CPUs, and 200 Mbit/s, as measured there with 100 at a time. It does
# not publish the speed of its programs: flops, memory_bandwidth, and the cut of its graphs are fitted to two rows of its
# tables 3 and 4 (docs/log/2026-11.md). It publishes nothing about stragglers.
_PAPER_FUNCTION = replace(
    _FUNCTION,
    memory_mb=192,
    network_bandwidth=200 * _MEGABIT,
    flops=11.5e9,
    variation=replace(_FUNCTION.variation, straggler_probability=0.0),
)
_PRODUCTS = 3.4e9
# Fitted to the CPU servers of GAT on reddit-small. The release loops over edges without BLAS, and its `reduce` reads a cache
# line per number (src/graph-server/commmanager/CPU_comm.cpp); its functions read row by row.
_EDGE_LOOPS = 1.75e9
# Random reads beyond the caches of Skylake-SP take 89 to 91 ns (AnandTech, July 2017). The release prefetches no rows.
_ROW_LATENCY = 90e-9


def _paper(name: str, graph_server: str, parameter_server: str, functions: int, flops: float = _PRODUCTS) -> Cluster:
    speeds: dict[str, Any] = {"flops": flops, "memory_bandwidth": 1.6e9, "row_latency": _ROW_LATENCY}
    return Cluster(
        name,
        replace(INSTANCES[graph_server], **speeds),
        replace(INSTANCES[parameter_server], **speeds),
        _PAPER_FUNCTION,
        functions,
        latency=DEFAULT_CLUSTER.latency,
    )


_KNOWN = (
    DEFAULT_CLUSTER,
    # Two threads, and a third of a processor for each function, which is then paid for less while it waits.
    Cluster(
        "small",
        INSTANCES["c5n.large"],
        INSTANCES["c5n.large"],
        replace(_FUNCTION, memory_mb=590),
        functions=100,
        latency=DEFAULT_CLUSTER.latency,
        contention=True,
    ),
    # Dorylus (OSDI '21), evaluation: model and graph, graph servers, parameter servers, functions per graph server.
    _paper("gcn-reddit-small", "c5.2xlarge", "c5.xlarge", 80),
    _paper("gcn-reddit-large", "c5n.2xlarge", "c5.2xlarge", 40),
    _paper("gcn-amazon", "c5n.2xlarge", "c5.xlarge", 90),
    _paper("gcn-friendster", "c5n.4xlarge", "c5.2xlarge", 50),
    _paper("gat-reddit-small", "c5.2xlarge", "c5.xlarge", 40, _EDGE_LOOPS),
    _paper("gat-amazon", "c5n.2xlarge", "c5.xlarge", 100, _EDGE_LOOPS),
)
_CLUSTERS: Mapping[str, Cluster] = MappingProxyType({one.name: one for one in _KNOWN})
