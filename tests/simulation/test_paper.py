from __future__ import annotations

import dataclasses

import pytest

from dorylax.cost.cluster_file import changed
from dorylax.jax_internals import type_of
from dorylax.pipeline.stages import stage_cost
from dorylax.simulation.paper import GRAPHS, TABLES_3_4, implied_epochs, relative
from dorylax.simulation.run import pipeline_of, simulate

# Dorylus, tables 3 and 4, as summed up there: V/V_gpu and V/V_cpu.
VALUES = {
    "gcn-reddit-small": (0.27, 1.11),
    "gcn-reddit-large": (0.62, 1.38),
    "gcn-amazon": (2.49, 1.19),
    "gcn-friendster": (3.86, 1.95),
    "gat-reddit-small": (0.25, 2.67),
    "gat-amazon": (4.83, 2.76),
}
SERVERS = {
    "reddit-small": {"gcn": 2, "gat": 10},
    "amazon": {"gcn": 8, "gat": 12},
    "reddit-large": {"gcn": 12},
    "friendster": {"gcn": 32},
}


@pytest.mark.parametrize("row", TABLES_3_4, ids=lambda row: row.name)
def test_published_cells_give_the_published_values(row):
    """Rounded costs: within 4 %."""
    cells = {backend: tuple(cell) for backend, cell in row.published.items()}
    for backend, value in zip(("gpu", "cpu"), VALUES[row.name], strict=True):
        assert relative(cells, backend)[1] == pytest.approx(value, rel=0.04)


@pytest.mark.parametrize("row", TABLES_3_4, ids=lambda row: row.name)
def test_scenarios_are_the_papers_clusters(row):
    made = row.scenario()
    assert made.pipeline.servers == SERVERS[row.graph][row.model]
    assert made.pipeline.intervals == made.cluster.functions
    assert made.cluster.contention
    assert (made.pipeline.mode, made.pipeline.staleness) == (("pipe", None) if row.synchronous else ("async", 0))
    assert not made.pipeline.freshness
    cost = made.cluster.graph_server.price * row.servers * row.published["cpu"].seconds / 3600
    assert cost == pytest.approx(row.published["cpu"].dollars, rel=0.05)
    gpu = row.scenario("gpu").cluster.graph_server.price * row.servers * row.published["gpu"].seconds / 3600
    assert gpu == pytest.approx(row.published["gpu"].dollars, rel=0.03)


@pytest.mark.parametrize("row", TABLES_3_4, ids=lambda row: row.name)
def test_servers_alone_run_one_synchronous_interval(row):
    """As `run/run-onnode` of the public release: NUM_LAMBDAS=1, no pipeline; a CPU's threads share it."""
    cpu, gpu = row.scenario("cpu"), row.scenario("gpu")
    assert (cpu.pipeline.mode, cpu.pipeline.intervals) == ("pipe", cpu.cluster.graph_server.threads)
    assert (gpu.pipeline.mode, gpu.pipeline.intervals) == ("pipe", 1)
    assert not cpu.cluster.functions
    assert not gpu.cluster.functions


def test_implied_epochs_make_the_published_seconds():
    row = TABLES_3_4[0]
    small = dataclasses.replace(row.scenario("cpu"), graph=dataclasses.replace(GRAPHS[row.graph], edges=1_000_000))
    found = simulate(small, epochs=2)
    epochs = implied_epochs(row.published["cpu"], found)
    assert found.prepare + epochs * found.epoch == pytest.approx(row.published["cpu"].seconds)


def test_no_cell_no_ratio():
    assert relative({"functions": (1.0, 1.0)}, "cpu") is None
    assert relative({"functions": (2.0, 3.0), "cpu": (4.0, 5.0)}, "cpu") == (0.5, 20 / 6)


@pytest.mark.parametrize("row", [row for row in TABLES_3_4 if row.model == "gcn"], ids=lambda row: row.name)
def test_its_program_is_run(row):
    """Dorylus, section 4: three calls per interval and epoch for a GCN, the features gathered in each, their ghosts kept."""
    scenario = row.scenario()
    sizes = dataclasses.replace(GRAPHS[row.graph], vertices=20_000, edges=100_000, cut_ratio=0.2)
    small = dataclasses.replace(scenario, graph=sizes)
    pipeline, _ = pipeline_of(small)
    plan = pipeline.prepared.plan
    assert [step.label for step in plan.epoch if step.on_worker] == ["AV", "AV+∇AV", "∇AV"]
    gathered = [type_of(step.operands[0].var).shape[-1] for step in plan.epoch if step.kind == "gather"]
    hidden = scenario.config.model.hidden_features
    assert gathered == [sizes.features, hidden, hidden]
    assert [one.constant for one in plan.publications] == [True, False, False]


@pytest.mark.parametrize("row", [row for row in TABLES_3_4 if row.model == "gat"], ids=lambda row: row.name)
def test_attention_is_computed_per_edge_on_functions(row):
    """As in the public release: one number per edge travels; three products of 2·h·C operations, the gradients' included."""
    scenario = row.scenario()
    small = dataclasses.replace(scenario, graph=dataclasses.replace(GRAPHS[row.graph], vertices=20_000, edges=100_000))
    pipeline, _ = pipeline_of(small)
    called = [step for step in pipeline.prepared.plan.epoch if step.on_worker and step.space == "edge"]
    assert [step.label for step in called] == ["AE", "∇AE"]
    edges = 1_000_000
    costs = [stage_cost(step, edges) for step in called]
    product = 2 * scenario.config.model.hidden_features * small.graph.classes
    assert sum(cost.flops for cost in costs) / edges == pytest.approx(3 * product, rel=0.06)
    assert all(cost.bytes_in + cost.bytes_out < 32 * edges for cost in costs)  # rows would be 100 bytes or more


def test_narrow_rows_are_gathered_no_faster_than_memory_answers():
    """The least time of a row reaches the engine's gathers: it changes an epoch of narrow rows, and none of wide ones."""
    row = TABLES_3_4[0]
    epochs = {}
    for features in (8, 800):
        for latency in (0.0, 90e-9):
            made = row.scenario("cpu")
            sizes = dataclasses.replace(GRAPHS[row.graph], vertices=20_000, edges=2_000_000, features=features)
            settings = {"hidden_features": features, "name": made.config.model.name}
            config = made.config.model_copy(update={"model": made.config.model.model_copy(update=settings)})
            cluster = changed(made.cluster, {"graph_server.row_latency": latency})
            small = dataclasses.replace(made, graph=sizes, config=config, cluster=cluster)
            epochs[features, latency] = simulate(small, epochs=2).epoch
    assert epochs[8, 90e-9] > 1.05 * epochs[8, 0.0]
    assert epochs[800, 90e-9] == epochs[800, 0.0]
