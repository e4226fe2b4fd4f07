"""Training with replacements for functions or servers, as configurations of the engine.

*Naive*: serverless training without computation separation. Functions do every task, gathers too, in place of the threads of
graph servers, which only store rows. A function reads and writes rows over a server's network instead of its memory.
Assumptions: a function keeps no rows, so a gather fetches a row for each edge; rows are spread evenly over servers;
functions are warm; a call fits the memory of a function.

*Burst*: more servers in place of functions. Each graph server has extra servers of its kind, with the virtual CPUs of all
functions that it keeps busy at a time. A call runs on each virtual CPU, with its share of the instance's network. Such calls
need no start and no gateway, and straggle no more than servers. Extra servers are billed by the hour.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dorylax.cost import Calls
from dorylax.cost.function import FULL_CPU_MB
from dorylax.simulation.result import Simulated, Utilisation
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError


def simulate_naive(scenario: Scenario, *, epochs: int = 3, on_epoch: Callable[[int], None] | None = None) -> Simulated:
    """Return the time and cost of a run in which functions do everything.

    Args:
        scenario: The run, on servers and functions.
        epochs: Number of epochs to simulate (≥ 1, at most those of the run).
        on_epoch: Called after each epoch with the number of finished epochs.

    Raises:
        ScenarioError: The cluster has no functions.
        ConfigError, SplitError, ValueError, OSError: See `simulate`.
    """
    cluster, server, function = scenario.cluster, scenario.cluster.graph_server, scenario.cluster.function
    if not cluster.functions:
        raise ScenarioError(f"{scenario.name} has no functions, which would do everything: give cluster.functions")
    slots = scenario.pipeline.tensor.slots or cluster.functions
    stand_in = dataclasses.replace(
        server,
        name=f"functions of {server.name}",
        threads=slots,
        threads_per_core=1,
        flops=function.flops * function.virtual_cpus,
        memory_bandwidth=function.bandwidth_among(slots),
        total_memory_bandwidth=server.network_bandwidth,
        overhead=function.overhead,
        variation=function.variation,
        row_latency=0.0,
        gpu=None,
    )
    alone = dataclasses.replace(cluster, graph_server=stand_in, functions=0)
    found = simulate(dataclasses.replace(scenario, cluster=alone), epochs=epochs, on_epoch=on_epoch)
    tasks = [task for task in found.tasks if task.resource == "graph"]
    number, each = sum(task.number for task in tasks), sum(task.seconds for task in tasks) / len(found.epochs)
    calls = Calls(number // len(found.epochs), math.ceil(1e3 * each))
    busy = found.utilisation
    return dataclasses.replace(
        found,
        cluster=cluster,
        calls=(Calls(), *[calls] * len(found.epochs)),
        utilisation=Utilisation(0.0, busy.graph_servers, busy.parameter_servers, busy.network),
    )


def extra_servers(scenario: Scenario) -> int:
    """Number of extra servers per graph server.

    Raises:
        ScenarioError: The cluster has no functions to replace.
    """
    cluster = scenario.cluster
    if not cluster.functions:
        raise ScenarioError(f"{scenario.name} has no functions that servers could replace: give cluster.functions")
    return math.ceil(cluster.functions * cluster.function.virtual_cpus / cluster.graph_server.threads)


def simulate_burst(scenario: Scenario, *, epochs: int = 3, on_epoch: Callable[[int], None] | None = None) -> Simulated:
    """Return the time and cost of a run with servers in place of functions; `servers` counts all of them.

    Args:
        scenario: The run, on servers and functions.
        epochs: Number of epochs to simulate, as for `simulate_naive`.
        on_epoch: Called after each epoch with the number of finished epochs.

    Raises:
        ScenarioError: The cluster has no functions.
        ConfigError, SplitError, ValueError, OSError: See `simulate`.
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
