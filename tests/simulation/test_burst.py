"""More servers in place of functions."""

from __future__ import annotations

import dataclasses

import pytest
from support.calm import calm

from dorylax.cost import clusters
from dorylax.simulation.comparisons import extra_servers, simulate_burst
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

SIZES = GraphSizes(10_000, 200_000, 64, 10)
SETTINGS = {"model.hidden_features": 16, "pipeline.servers": 2, "pipeline.intervals": 4, "train.epochs": 10}
SETTINGS["tensor.placement"] = "functions"


def scenario(cluster: str = "default") -> Scenario:
    return Scenario.of("any", {**SETTINGS, "pipeline.cluster": cluster}, graph=SIZES)


def test_as_many_virtual_cpus_as_functions_have():
    """90 of 192 MB have 9.8, two servers of 8; 100 of a whole one need 13."""
    assert extra_servers(scenario("gcn-amazon")) == 2
    assert clusters()["default"].function.virtual_cpus == 1
    assert extra_servers(scenario()) == 13
    with pytest.raises(ScenarioError, match="has no functions that servers could replace"):
        extra_servers(scenario().on("cpu"))


def test_they_are_rented_for_the_whole_run_and_functions_cost_nothing():
    made = scenario("gcn-amazon")
    made = dataclasses.replace(made, cluster=calm(made.cluster))
    found, functions = simulate_burst(made, epochs=2), simulate(made, epochs=2)
    assert found.servers == 3 * functions.servers
    bill = found.bill
    assert bill.function_time == bill.function_requests == 0
    assert bill.graph_servers == pytest.approx(6 * found.seconds * made.cluster.graph_server.price / 3600)
    # Nothing starts, nobody waits for a gateway, and each has a whole virtual CPU.
    assert found.epochs[0] < functions.epochs[0] - made.cluster.function.cold_start / 2
    assert found.epoch < functions.epoch
