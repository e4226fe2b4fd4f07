"""Serverless training without computation separation: functions do every task of an epoch, gathers too.

Graph servers only store rows, and functions stand in for their threads: what a thread would read from memory, a function
fetches from a server and puts back, over that server's network. Assumptions: a function keeps no rows, so that a gather
fetches a row for each edge; rows lie on all servers alike; functions are warm; a call fits the memory of a function.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dorylax.cost import Calls
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
