"""Training on sampled mini-batches by CPU servers."""

from __future__ import annotations

import dataclasses

import pytest
from support.calm import calm

from dorylax.simulation.sampled import FANOUTS, TARGETS, hops, simulate_sampled
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

SIZES = GraphSizes(48_000, 480_000, 64, 10)
HIDDEN = 16


def scenario(*, graph: GraphSizes = SIZES, contention: bool = True, **settings) -> Scenario:
    given = {"model.hidden_features": HIDDEN, "pipeline.intervals": 4, "train.epochs": 10}
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    made = Scenario.of("any", given, graph=graph, contention=contention)
    return dataclasses.replace(made, cluster=calm(made.cluster))


def with_server(made: Scenario, **changes) -> Scenario:
    server = dataclasses.replace(made.cluster.graph_server, **changes)
    return dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, graph_server=server))


@pytest.mark.parametrize("servers", [1, 2])
def test_one_thread_of_each_server_takes_the_sum_of_all(servers: int):
    """By hand: what is asked of another server takes a request, the reading there, and an answer."""
    made = with_server(scenario(contention=False, pipeline__servers=servers), threads=1)
    found = simulate_sampled(made, epochs=2)
    server, parameters = made.cluster.graph_server, made.cluster.parameter_server
    targets, near, far = hops(SIZES.degrees, servers, TARGETS, FANOUTS)

    def work(flops: float, bytes: float) -> float:
        return server.overhead + flops / server.flops + bytes / server.memory_bandwidth

    def message(bytes: float) -> float:
        return made.cluster.latency + bytes / server.network_bandwidth

    def fetch(own: float, others: float, read: float, sent: float) -> float:
        asked = message(4 * others) + work(0, read * others) + message(sent * others) if others else 0.0
        return max(work(0, read * own), asked)

    first, then = near.edges / TARGETS, far.edges / (near.vertices - TARGETS)  # neighbours of a vertex
    along = (near.edges + far.edges) * 64 + 2 * near.edges * HIDDEN
    products = 2 * 2 * near.vertices * 64 * HIDDEN + 3 * 2 * targets.own * HIDDEN * 10
    weights = 4 * HIDDEN * (64 + 10)
    batch = (
        fetch(TARGETS, 0, 64 * first, 4 * first)
        + fetch(near.own - TARGETS, near.others, 64 * then, 4 * then)
        + fetch(far.own, far.others, 4 * 64, 4 * 64)
        + work(products + along, 4 * along)
        + 2 * message(weights)
        + parameters.overhead
        + 7 * weights / parameters.memory_bandwidth
    )
    batches = {1: 63, 2: 32}[servers]  # 32,000 vertices are trained on
    assert found.epochs == pytest.approx([batches * batch] * 2)
    assert found.prepare == 0
    assert found.bill.function_requests == found.bill.function_time == 0
    assert 0.8 < found.utilisation.graph_servers <= 1


def test_servers_share_an_epoch():
    two, four = (simulate_sampled(scenario(pipeline__servers=servers)) for servers in (2, 4))
    assert four.epoch < two.epoch
    assert (two.servers, four.servers) == (2, 4)
    assert two == simulate_sampled(scenario(pipeline__servers=2))


def test_features_of_others_come_through_the_network():
    made = scenario(pipeline__servers=4)
    narrow = with_server(made, network_bandwidth=1e7)
    assert simulate_sampled(narrow).epoch > 3 * simulate_sampled(made).epoch
    whole = scenario(pipeline__servers=4, graph=dataclasses.replace(SIZES, cut_ratio=0.0))
    # Nothing but weights is left to send.
    assert simulate_sampled(with_server(whole, network_bandwidth=1e7)).epoch < simulate_sampled(narrow).epoch / 3


def test_an_epoch_that_is_not_simulated_whole_takes_as_long():
    """A graph that is ten times as large takes ten times as long, but for neighbours that meet less often."""
    small, large = (
        simulate_sampled(with_server(scenario(pipeline__servers=1, graph=graph), threads=2))
        for graph in (SIZES, dataclasses.replace(SIZES, vertices=480_000, edges=4_800_000))
    )
    assert 9 < large.epoch / small.epoch < 20


def test_epochs_are_told_and_no_more_than_there_are():
    seen = []
    found = simulate_sampled(scenario(train__epochs=2), epochs=5, on_epoch=seen.append)
    assert seen == [1, 2]
    assert len(found.epochs) == len(found.calls) - 1 == 2


def test_functions_and_gpus_do_not_matter():
    made = scenario()
    assert simulate_sampled(made) == simulate_sampled(made.on("cpu"))


def test_what_it_cannot_be():
    made = Scenario.of("mine", {"data.name": "karate", "pipeline.intervals": 2})
    with pytest.raises(ScenarioError, match="simulated by sizes: give mine a graph in place of data"):
        simulate_sampled(made)
