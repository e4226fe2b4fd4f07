"""Comparisons of two ways of training, with the ratios published in the Dorylus paper.

Two of the ways are configurations of the engine that replace functions or servers:

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, final

from dorylax.cost import Calls
from dorylax.cost.function import FULL_CPU_MB
from dorylax.simulation.paper import TABLES_3_4, dollars_of_paper
from dorylax.simulation.result import Simulated, Utilisation
from dorylax.simulation.run import simulate
from dorylax.simulation.sampled import simulate_sampled
from dorylax.simulation.scenario import Scenario, ScenarioError

OnEpoch = Callable[[int], None] | None
Simulate = Callable[..., Simulated]
"""Simulates a scenario on servers and functions; takes `epochs` and `on_epoch` as `simulate`, and raises as it does."""


def simulate_naive(scenario: Scenario, *, epochs: int = 3, on_epoch: OnEpoch = None) -> Simulated:
    """Simulate a run in which functions do everything; a ScenarioError is raised if the cluster has none."""
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
    """Number of extra servers per graph server; a ScenarioError is raised if there are no functions to replace."""
    cluster = scenario.cluster
    if not cluster.functions:
        raise ScenarioError(f"{scenario.name} has no functions that servers could replace: give cluster.functions")
    return math.ceil(cluster.functions * cluster.function.virtual_cpus / cluster.graph_server.threads)


def simulate_burst(scenario: Scenario, *, epochs: int = 3, on_epoch: OnEpoch = None) -> Simulated:
    """Simulate a run with servers in place of functions; `servers` counts all of them. Raises as `extra_servers`."""
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


class Side(NamedTuple):
    """A way of training."""

    name: str
    simulate: Simulate


@final
@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two ways of training.

    Attributes:
        title: Title in the output.
        one, other: The ways.
        measure: Measure of the ratio: seconds of an epoch, or dollars of the run without parameter servers, as in the paper.
        published: The published ratio of one to the other.
        note: The difference between the published ratio and the measure, if there is one.
        rows: Rows of tables 3 and 4 to simulate. The paper does not say on which graph its ratios were measured.
    """

    title: str
    one: Side
    other: Side
    measure: Literal["epoch_seconds", "dollars"]
    published: float
    note: str = ""
    rows: tuple[str, ...] = ("gcn-reddit-small", "gcn-amazon")

    def scenarios(self) -> list[Scenario]:
        """The scenarios to simulate both ways, on servers and functions."""
        return [row.scenario() for row in TABLES_3_4 if row.name in self.rows]

    def ratio(self, one: Simulated, other: Simulated) -> float:
        """The ratio of two results by the measure."""
        if self.measure == "epoch_seconds":
            return one.epoch / other.epoch
        return dollars_of_paper(one) / dollars_of_paper(other)


COMPARISONS: Mapping[str, Comparison] = {
    "paper/naive-serverless": Comparison(
        "naive serverless training: functions do everything",
        Side("naive", simulate_naive),
        Side("CPU servers", lambda scenario, **options: simulate(scenario.on("cpu"), **options)),
        "epoch_seconds",
        21.0,
    ),
    "paper/burst-instances": Comparison(
        "burst parallelism by instances: more servers in place of functions",
        Side("instances", simulate_burst),
        Side("functions", simulate),
        "dollars",
        2.2,
    ),
    "paper/sampled": Comparison(
        "mini-batches of sampled neighbours on CPU servers, as AliGraph trains",
        Side("sampled", simulate_sampled),
        Side("functions", simulate),
        "epoch_seconds",
        3.76,
        "The published ratio is of the whole time to 63.00 % (table 5: 1560.66 s and 415.23 s), not of an epoch's: sampled "
        "training takes many steps in an epoch, and needs fewer epochs. How many either needed is not published.",
        ("gcn-amazon",),
    ),
}
"""Comparisons by the name that `dorylax simulate --scenario` takes."""


def content(comparison: Comparison, rows: Sequence[tuple[str, Simulated, Simulated]]) -> dict[str, Any]:
    """Return a comparison as JSON values; each row is the name of a scenario with both results."""
    return {
        "title": comparison.title,
        "measure": comparison.measure,
        "published": comparison.published,
        "note": comparison.note,
        "rows": [
            {
                "row": name,
                "ratio": comparison.ratio(one, other),
                comparison.one.name: one.to_dict(),
                comparison.other.name: other.to_dict(),
            }
            for name, one, other in rows
        ],
    }
