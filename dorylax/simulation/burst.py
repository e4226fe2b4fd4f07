"""Burst parallelism by instances: more servers in place of functions, rented for the whole run.

Beside each graph server stand so many more of its kind as have the virtual CPUs of all functions that it keeps busy at a
time. They do what functions did, a call on each virtual CPU, with its share of the instance's network. They need no start
and no gateway, do not straggle more than servers, and are billed by the hour whether there is something to do or not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dorylax.cost.function import FULL_CPU_MB
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError


def extra_servers(scenario: Scenario) -> int:
    """How many stand beside each graph server.

    Raises:
        ScenarioError: there are no functions that they could replace.
    """
    cluster = scenario.cluster
    if not cluster.functions:
        raise ScenarioError(f"{scenario.name} has no functions that servers could replace: give cluster.functions")
    return math.ceil(cluster.functions * cluster.function.virtual_cpus / cluster.graph_server.threads)


def simulate_burst(scenario: Scenario, *, epochs: int = 3, on_epoch: Callable[[int], None] | None = None) -> Simulated:
    """What a run would take and cost with servers in place of functions; `servers` counts them all.

    Args:
        scenario: the run, on servers and functions.
        epochs: as of `simulate`.
        on_epoch: likewise.

    Raises:
        ScenarioError: there are no functions.
        ConfigError, SplitError, ValueError, OSError: as `simulate`.
    """
    cluster, server, extra = scenario.cluster, scenario.cluster.graph_server, extra_servers(scenario)
    share = server.network_bandwidth / server.threads
    worker = dataclasses.replace(
        cluster.function,
        memory_mb=FULL_CPU_MB,
        flops=server.flops,
        network_bandwidth=share,
        lone_bandwidth=share,
        crowding=0.0,
        cold_start=0.0,
        overhead=2 * cluster.latency + server.overhead,
        price_per_gb_second=0.0,
        price_per_million_requests=0.0,
        variation=server.variation,
    )
    rented = dataclasses.replace(cluster, function=worker, functions=extra * server.threads)
    found = simulate(dataclasses.replace(scenario, cluster=rented), epochs=epochs, on_epoch=on_epoch)
    return dataclasses.replace(found, servers=found.servers * (1 + extra))
