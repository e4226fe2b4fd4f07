from __future__ import annotations

import dataclasses

import pytest
from support.calm import calm

from dorylax.cost import INSTANCES, find_cluster
from dorylax.cost.cluster_file import changed
from dorylax.observers.progress import duration
from dorylax.settings.errors import ConfigError
from dorylax.simulation.result import Simulated, finding
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError
from dorylax.trainer import Trainer

SIZES = GraphSizes(10_000, 200_000, 64, 10)
SETTINGS = {
    "model.hidden_features": 16,
    "pipeline.servers": 3,
    "pipeline.intervals": 4,
    "train.epochs": 10,
    "tensor.placement": "functions",
}


def scenario(graph: GraphSizes | None = SIZES, **settings) -> Scenario:
    return Scenario.of(
        "any", {**SETTINGS, **{key.replace("__", "."): value for key, value in settings.items()}}, graph=graph
    )


def test_it_is_what_training_takes_and_costs(tmp_path):
    """On the virtual clock with numbers, evaluations included, which cost nothing."""
    settings = {
        "data.name": "communities",
        "data.size": "tiny",
        "pipeline.servers": 2,
        "pipeline.intervals": 3,
        "train.epochs": 3,
    }
    made = Scenario.of("any", settings, contention=False)
    found = simulate(made, epochs=3)
    trained = Trainer.from_config(made.config, run_directory=tmp_path / "run").fit()
    assert [*found.epochs[1:]] == pytest.approx([record.seconds for record in trained.history[1:]], rel=1e-12)
    assert trained.history[0].seconds == pytest.approx(found.prepare + found.epochs[0], rel=1e-12)
    assert trained.history[-1].dollars == pytest.approx(found.bill.total, rel=1e-9)


def test_epochs_that_are_not_simulated_are_as_the_later_ones():
    made = scenario()
    made = dataclasses.replace(made, cluster=calm(made.cluster))
    one, few, whole = (simulate(made, epochs=epochs) for epochs in (1, 3, 99))
    assert one.seconds == pytest.approx(one.prepare + 10 * one.epochs[0])
    assert few.epochs[0] == one.epochs[0]
    assert few.epoch == pytest.approx(sum(few.epochs[1:]) / 2)
    assert few.seconds == pytest.approx(few.prepare + sum(few.epochs) + 7 * few.epoch)
    assert few.epochs[0] > few.epoch + find_cluster("default").function.cold_start / 2  # functions started cold
    assert len(whole.epochs) == 10
    assert whole.seconds == pytest.approx(whole.prepare + sum(whole.epochs))
    assert whole.seconds == pytest.approx(few.seconds, rel=0.01)
    assert whole.bill.total == pytest.approx(few.bill.total, rel=0.01)


def test_more_servers_are_faster_and_functions_cost():
    few, many = (simulate(scenario(pipeline__servers=servers), epochs=2) for servers in (2, 6))
    assert many.epoch < few.epoch
    assert few.to_dict()["dollars"]["functions"] > 0
    cpu = simulate(scenario().on("cpu"), epochs=2)
    assert cpu.to_dict()["dollars"]["functions"] == cpu.utilisation.functions == 0
    assert not any(task.resource == "tensor" for task in cpu.tasks)
    for found in (few, cpu):
        assert 0 < found.utilisation.graph_servers <= 1
        assert found.bill.total == pytest.approx(sum(found.to_dict()["dollars"].values()) / 2)


def test_contention_makes_nothing_faster():
    made = scenario()
    steady = dataclasses.replace(calm(made.cluster), functions=2)
    # As fast alone as without contention.
    function = dataclasses.replace(steady.function, lone_bandwidth=steady.function.network_bandwidth)
    server = dataclasses.replace(steady.graph_server, lone_thread=1.0)
    steady = dataclasses.replace(steady, function=function, graph_server=server)
    alone, shared = (
        simulate(dataclasses.replace(made, cluster=dataclasses.replace(steady, contention=contention)), epochs=3)
        for contention in (False, True)
    )
    assert shared.epoch > alone.epoch * 1.01


def test_tasks_are_told_by_name():
    spans = []
    found = simulate(scenario(), epochs=2, trace=spans.append)
    of_epochs = [span for span in spans if span.epoch >= 0 and span.resource == "network"]
    (network,) = (task for task in found.tasks if task.name == "SC")
    assert (network.resource, network.number) == ("network", len([s for s in of_epochs if s.name.startswith("SC")]))
    assert network.seconds == pytest.approx(
        sum(span.end - span.start for span in of_epochs if span.name.startswith("SC"))
    )
    assert [task.seconds for task in found.tasks] == sorted((task.seconds for task in found.tasks), reverse=True)


def test_what_does_not_fit_a_gpu_is_refused():
    made = scenario(GraphSizes(1_000_000, 20_000_000, 600, 10)).on("gpu")
    assert simulate(made, epochs=1).epoch > 0
    small = dataclasses.replace(INSTANCES["p3.2xlarge"].gpu, memory=1e8)
    server = dataclasses.replace(made.cluster.graph_server, gpu=small)
    narrow = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, graph_server=server))
    with pytest.raises(ScenarioError, match=r"the GPU of p3.2xlarge has 0.1: give more servers"):
        simulate(narrow, epochs=1)


@pytest.mark.parametrize(
    ("backend", "changes", "problem"),
    [
        (
            "functions",
            {"graph_server.memory": 1e7},
            "a graph server would hold .* GB, c5n.2xlarge has 0.0: give more servers",
        ),
        (
            "cpu",
            {"graph_server.memory": 1e7},
            "a graph server would hold .* GB, c5n.2xlarge has 0.0: give more servers",
        ),
        ("functions", {"function.memory_mb": 128}, "a function would hold .* GB, and has 0.13: give more intervals"),
        ("functions", {"graph_server.memory": 0.0}, None),  # unknown
        ("cpu", {"function.memory_mb": 128}, None),  # it has none
        ("gpu", {"graph_server.memory": 1e7}, None),  # it has others
    ],
)
def test_what_does_not_fit_memory_is_refused(backend, changes, problem):
    made = scenario(GraphSizes(4_000_000, 8_000_000, 64, 10), pipeline__intervals=2)
    made = dataclasses.replace(made, cluster=changed(made.cluster, changes)).on(backend)
    if problem is None:
        assert simulate(made, epochs=1).epoch > 0
    else:
        with pytest.raises(ScenarioError, match=problem):
            simulate(made, epochs=1)


def test_a_network_that_is_narrow_is_the_bottleneck():
    wide, narrow = (scenario(), scenario())
    narrow = dataclasses.replace(narrow, cluster=changed(narrow.cluster, {"graph_server.network_bandwidth": 1e6}))
    wide, narrow = simulate(wide, epochs=2), simulate(narrow, epochs=2)
    assert 0 < wide.utilisation.network < 0.5 < narrow.utilisation.network <= 1.05
    assert narrow.utilisation.bottleneck == ("network", narrow.utilisation.network)
    assert finding([narrow]).endswith(
        f"the bottleneck is the network, busy {100 * narrow.utilisation.network:.0f} % of the time"
    )
    assert narrow.to_dict()["utilisation"]["network"] == narrow.utilisation.network
    cpu = simulate(scenario(pipeline__servers=1).on("cpu"), epochs=2)
    here = simulate(scenario(pipeline__servers=1, tensor__placement="servers"), epochs=2)
    for alone in (cpu, here):  # no rows to send, only gradients
        assert alone.utilisation.network < 0.01


def test_a_server_needs_memory_for_the_stages_that_it_keeps_from_functions():
    graph = GraphSizes(4_000_000, 8_000_000, 64, 10)
    away, here = (scenario(graph, pipeline__intervals=2, tensor__placement=place) for place in ("functions", "servers"))
    small = changed(away.cluster, {"graph_server.memory": 2.5e9})
    assert simulate(dataclasses.replace(away, cluster=small), epochs=1).epoch > 0
    with pytest.raises(ScenarioError, match=r"a graph server would hold 3.7 GB, c5n.2xlarge has 2.5"):
        simulate(dataclasses.replace(here, cluster=small), epochs=1)


def test_the_finding_names_the_cheapest_and_the_fastest():
    cpu, gpu = (simulate(scenario().on(backend), epochs=1) for backend in ("cpu", "gpu"))
    assert cpu.bill.total < gpu.bill.total
    assert finding([cpu]).startswith("on cpu: 10 epochs take ")
    text = finding([gpu, cpu])
    assert text.startswith(f"the cheapest of 2 backends is cpu: 10 epochs take {duration(cpu.seconds)} and cost ")
    assert ("gpu takes " in text) == (gpu.seconds < cpu.seconds)


def test_a_graph_that_is_too_small_is_refused():
    with pytest.raises(ConfigError, match=r"^pipeline\.intervals"):
        simulate(scenario(GraphSizes(10, 20, 4, 2)))


def test_seeds_and_nothing_else_decide():
    def found(**settings) -> Simulated:
        return simulate(scenario(**settings), epochs=2)

    assert found() == found()
    assert found().epochs != found(train__seed=1).epochs


def test_streaming_fetches_while_functions_compute():
    """Half of the rows at most, for as long as there is something to compute; with contention, too."""
    made = scenario(model__dropout=0.0)
    cluster = calm(made.cluster)
    cluster = dataclasses.replace(cluster, function=dataclasses.replace(cluster.function, flops=1e8))
    for contention in (False, True):
        rented = dataclasses.replace(cluster, contention=contention)
        plain, streaming = (
            simulate(dataclasses.replace(scenario(model__dropout=0.0, tensor__streaming=on), cluster=rented), epochs=2)
            for on in (False, True)
        )
        assert streaming.epoch < plain.epoch
        assert streaming.bill.requests == plain.bill.requests
        assert streaming.bill.gb_seconds < plain.bill.gb_seconds


def test_fewer_calls_where_stages_are_fused():
    fused, apart = (simulate(scenario(model__dropout=0.0, pipeline__fuse=on), epochs=2) for on in (True, False))
    assert apart.bill.requests > fused.bill.requests


def test_a_run_settles_before_its_later_epochs_are_what_others_will_be():
    def found(epochs: int | None, **settings) -> Simulated:
        return simulate(scenario(pipeline__mode="async", **settings), epochs=epochs)

    assert simulate(scenario()).settling == 1
    assert len(simulate(scenario()).epochs) == 3
    assert found(1, pipeline__staleness=0).settling == 1
    ahead = found(None, pipeline__staleness=2)
    assert (ahead.settling, len(ahead.epochs)) == (3, 5)
    assert ahead.epoch == pytest.approx(sum(ahead.epochs[3:]) / 2)
    assert found(2, pipeline__staleness=2).epoch == ahead.epochs[1]  # nothing better is known
    assert found(4, pipeline__staleness=2) == found(4, pipeline__staleness=2, pipeline__stability_gate=False)


def test_stale_intervals_run_ahead_from_the_beginning():
    """Nothing is computed, so the curvature is unknown, and the stability gate stays open."""
    fresh, stale = (
        simulate(scenario(pipeline__mode="async", pipeline__staleness=staleness, train__epochs=30), epochs=30).epochs
        for staleness in (0, 1)
    )
    assert sum(stale[6:]) < 0.95 * sum(fresh[6:])


def test_stragglers_delay_synchronous_epochs_and_hardly_asynchronous_ones():
    """Each of eight servers computes nothing for 2 s with probability 0.2: in most synchronous epochs all wait for one."""
    seconds = {}
    for mode, settings in {
        "pipe": {},
        "async": {"pipeline__mode": "async", "pipeline__staleness": 3, "pipeline__freshness": 0.0},
    }.items():
        made = scenario(pipeline__servers=8, pipeline__intervals=2, train__epochs=30, **settings).on("cpu")
        for pause in (0.0, 2.0):
            cluster = changed(calm(made.cluster), {"pause": pause, "pause_probability": 0.2})
            seconds[mode, pause] = simulate(dataclasses.replace(made, cluster=cluster), epochs=30).seconds
    delay = seconds["pipe", 2.0] - seconds["pipe", 0.0]
    assert delay / (30 * 2.0) == pytest.approx(1 - 0.8**8, abs=0.15)
    assert seconds["async", 2.0] < 0.7 * seconds["pipe", 2.0]
    assert seconds["async", 2.0] > seconds["async", 0.0] + 30 * 2.0 * 0.2 / 2
