"""Serverless training in which functions do everything."""

from __future__ import annotations

import dataclasses

import pytest
from support.calm import calm

from dorylax.pipeline.operators import Piece
from dorylax.pipeline.stages import stage_cost
from dorylax.simulation.comparisons import simulate_naive
from dorylax.simulation.run import pipeline_of, simulate
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

SIZES = GraphSizes(10_000, 200_000, 64, 10)
SETTINGS = {"model.hidden_features": 16, "model.dropout": 0.0, "pipeline.intervals": 4, "train.epochs": 10}


def scenario(**settings) -> Scenario:
    made = Scenario.of("any", {**SETTINGS, **{key.replace("__", "."): v for key, v in settings.items()}}, graph=SIZES)
    return dataclasses.replace(made, cluster=calm(made.cluster))


def test_one_call_at_a_time_takes_the_sum_of_all():
    """One function of one server, by hand: each step's request, operations and bytes; a gather fetches a row per edge."""
    made = scenario(pipeline__servers=1, pipeline__intervals=1, pipeline__edge_chunk=10**9)
    made = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, functions=1))
    found = simulate_naive(made, epochs=2)
    pipeline, _ = pipeline_of(made.on("cpu"))
    steps = [step for step in pipeline.prepared.plan.epoch if step.kind in ("stage", "gather")]
    assert any(step.kind == "gather" for step in steps)
    function, expected = made.cluster.function, 0.0
    bandwidth = min(function.bandwidth_among(1), made.cluster.graph_server.network_bandwidth)
    for step in steps:
        if step.kind == "gather":
            piece = Piece(step, 0, 10_000, 200_000)
            flops, moved = piece.flops, piece.bytes
        else:
            cost = stage_cost(step, 10_000)
            flops, moved = cost.flops, cost.bytes_in + cost.bytes_out
        expected += function.overhead + flops / (function.flops * function.virtual_cpus) + moved / bandwidth
    assert found.epoch == pytest.approx(expected, rel=0.05)  # besides, the parameter server's messages
    assert [one.requests for one in found.calls] == [0, len(steps), len(steps)]
    assert found.calls[1].milliseconds == pytest.approx(1e3 * expected, rel=0.01)


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


def test_it_is_slower_than_with_graph_servers_and_pays_servers_and_functions():
    made = scenario(pipeline__servers=2, pipeline__mode="async")
    found, separated = simulate_naive(made), simulate(made)
    assert found.epoch > separated.epoch
    assert found.bill.function_time > separated.bill.function_time
    assert found.bill.graph_servers > 0
    seen = []
    simulate_naive(made, epochs=2, on_epoch=seen.append)
    assert seen == [1, 2]


def test_what_it_cannot_be():
    with pytest.raises(ScenarioError, match="has no functions, which would do everything"):
        simulate_naive(scenario().on("cpu"))


def test_calls_of_a_server_share_its_network():
    made = scenario(pipeline__servers=1, pipeline__intervals=2)
    slow = dataclasses.replace(made.cluster.graph_server, network_bandwidth=1e6)
    narrow = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, graph_server=slow))
    assert simulate_naive(narrow).epoch > 5 * simulate_naive(made).epoch
