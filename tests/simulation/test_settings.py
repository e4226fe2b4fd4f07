"""Scenarios as settings."""

from __future__ import annotations

import pytest

from dorylax.config import RunConfig
from dorylax.cost import INSTANCES, find_cluster
from dorylax.settings.errors import ConfigError
from dorylax.simulation.paper import GRAPHS
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario
from dorylax.simulation.settings import Simulation

SETTINGS = {"model.hidden_features": 16, "pipeline.servers": 3, "pipeline.intervals": 4, "train.epochs": 10}
SIZES = {"graph.vertices": 10_000, "graph.edges": 200_000, "graph.features": 64, "graph.classes": 10}


def config(**settings) -> RunConfig:
    return RunConfig.resolve({"pipeline.clock": "virtual"}, SETTINGS, settings)


@pytest.mark.parametrize("backend", ["functions", "cpu", "gpu"])
def test_it_is_the_scenario_of_these_settings(backend):
    made = Simulation.of({**SIZES, "simulation.backend": backend}).scenario("any", config())
    sizes = GraphSizes(10_000, 200_000, 64, 10)
    assert made == Scenario.of("any", SETTINGS, graph=sizes).on(backend)
    assert simulate(made, epochs=2) == simulate(Scenario.of("any", SETTINGS, graph=sizes).on(backend), epochs=2)


def test_graphs_by_name_and_clusters_with_other_values():
    given = {
        "graph.name": "amazon",
        "graph.edges": 5,
        "simulation.contention": False,
        "cluster.graph_server": "r5.2xlarge",
        "cluster.function.memory_mb": 512,
        "cluster.functions": None,  # as the cluster says
    }
    simulation = Simulation.of(given)
    made = simulation.scenario("any", config())
    assert made.graph.vertices == GRAPHS["amazon"].vertices
    assert made.graph.edges == 5
    assert made.cluster.graph_server == INSTANCES["r5.2xlarge"]
    assert made.cluster.function.memory_mb == 512
    assert not made.cluster.contention
    assert made.cluster.functions == find_cluster("default").functions
    said = simulation.dotted()
    assert said["cluster.function.memory_mb"] == 512
    assert said["simulation.epochs"] is None
    assert simulation.identity() == {key: value for key, value in given.items() if value is not None}
    assert Simulation.of({}).graph is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"graph.name": "amazn"}, r"graph\.name = amazn is no known graph: did you mean amazon\?"),
        ({"graph.vertices": 10}, r"graph\.edges is missing: give it, or a graph\.name"),
        ({"graph.name": "amazon", "graph.cut_ratio": 2.0}, r"graph: cut_ratio must be in 0 … 1, got 2\.0"),
        ({"graph.size": 10}, r"unknown key 'graph\.size'"),
        ({"simulation.backend": "lambda"}, r"simulation\.backend must be one of functions, cpu, gpu, got 'lambda'"),
        ({"simulation.epochs": 0}, r"simulation\.epochs must be ≥ 1, got 0"),
        ({"cluster": 3}, r"cluster is a section and must hold keys such as cluster\.functions"),
        ({"cluster.functions": [3]}, r"cluster\.functions must be a number or text, got \[3\]"),
        ({"cluster.function.memory": 3}, r"cluster\.function\.memory is not a key of a cluster"),
        (
            {"simulation.backend": "cpu", "cluster.functions": 3},
            r"cluster\.functions = 3 needs simulation\.backend=functions, got cpu",
        ),
    ],
)
def test_what_cannot_be_names_its_key(given, problem):
    with pytest.raises(ConfigError, match=f"^{problem}"):
        Simulation.of(given).scenario("any", config())
