"""Serverless training in which functions do everything."""

from __future__ import annotations

import dataclasses

import pytest
from support.calm import calm

from dorylax.clock import VirtualClock
from dorylax.cost import Machines, TimeModel
from dorylax.simulation.naive import simulate_naive
from dorylax.simulation.run import pipeline_of, simulate
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

SIZES = GraphSizes(10_000, 200_000, 64, 10)
SETTINGS = {"model.hidden_features": 16, "model.dropout": 0.0, "pipeline.intervals": 4, "train.epochs": 10}


def scenario(**settings) -> Scenario:
    made = Scenario.of("any", {**SETTINGS, **{key.replace("__", "."): v for key, v in settings.items()}}, graph=SIZES)
    return dataclasses.replace(made, cluster=calm(made.cluster))


def test_one_call_at_a_time_takes_the_sum_of_all():
    """A server with one function and no contention: by hand, from the plan."""
    made = scenario(pipeline__servers=1, pipeline__intervals=1)
    cluster = dataclasses.replace(made.cluster, functions=1, contention=False)
    made = dataclasses.replace(made, cluster=cluster)
    found = simulate_naive(made, epochs=2)
    pipeline, _ = pipeline_of(made, made.pipeline)
    steps = pipeline.prepared.plan.epoch
    assert [one.requests for one in found.calls] == [len(pipeline.prepared.plan.once), len(steps), len(steps)]
    assert found.epochs[0] == pytest.approx(found.epochs[1])
    gathers = [step for step in steps if step.kind == "gather"]
    function = cluster.function
    # All 10,000 rows and 200,000 edges; the sums are of 16 columns, forwards, and of 10 or 16 backwards.
    least = (
        len(steps) * function.overhead + len(gathers) * (4 * 200_000 + 2 * 4 * 10 * 10_000) / function.network_bandwidth
    )
    assert least < found.epochs[0] < 4 * least


def test_functions_at_a_time_share_the_work():
    made = scenario(pipeline__servers=2)
    few, many = (
        simulate_naive(dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, functions=functions)))
        for functions in (1, 4)
    )
    assert many.epoch < few.epoch
    assert [one.requests for one in many.calls[1:]] == [one.requests for one in few.calls[1:]]
    assert 0 < many.utilisation.functions <= 1
    assert 0 < few.utilisation.functions <= 1


def test_it_is_slower_than_with_graph_servers_and_starts_cold_once():
    made = scenario(pipeline__servers=2)
    found, separated = simulate_naive(made), simulate(made)
    assert found.epoch > separated.epoch
    assert found.prepare > made.cluster.function.cold_start
    assert found.epochs[1] < found.prepare
    assert found.bill.total > 0
    seen = []
    simulate_naive(made, epochs=2, on_epoch=seen.append)
    assert seen == [1, 2]


def test_what_it_cannot_be():
    with pytest.raises(ScenarioError, match="has no functions, which would do everything"):
        simulate_naive(scenario().on("cpu"))


def test_calls_of_a_server_share_its_network():
    """As any function does: what `TimeModel` gives, on machines of their own."""
    made = scenario(pipeline__servers=1, pipeline__intervals=2)
    slow = dataclasses.replace(made.cluster.graph_server, network_bandwidth=1e6)
    narrow = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, graph_server=slow))
    assert simulate_naive(narrow).epoch > 5 * simulate_naive(made).epoch
    with VirtualClock() as clock:
        assert TimeModel(narrow.cluster, 0, Machines(narrow.cluster, clock, 2)).machines is not None
