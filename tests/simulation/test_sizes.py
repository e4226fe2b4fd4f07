"""Sizes alone give the times of the graph that has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from dorylax.graph import Graph
from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.graph.partition import Layout
from dorylax.graph.partition.simple import even_bounds
from dorylax.graph.shard import AnyShard
from dorylax.layers.registry import MODELS
from dorylax.pipeline.timing import timed_pipeline
from dorylax.program.model.kinds import take_apart
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario
from dorylax.trainer.from_config import build_model
from dorylax.trainer.step.objective import Objective

VERTICES, DEGREE, SPREAD, SERVERS, INTERVALS = 8000, 16, 0.7, 3, 6


def scenario(model: str, graph: GraphSizes, **settings) -> Scenario:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    shape = {"pipeline.servers": SERVERS, "pipeline.intervals": INTERVALS, "pipeline.cluster": "gat-amazon"}
    shape |= {"tensor.placement": "functions", "tensor.relaunches": 0}  # decisions by measured times are mere chance
    found = Scenario.of(model, {"model.name": model, **shape, **settings}, graph=graph)
    function = found.cluster.function
    steady = dataclasses.replace(function.variation, straggler_probability=0.0)  # which is late is mere chance
    cluster = dataclasses.replace(found.cluster, function=dataclasses.replace(function, variation=steady))
    return dataclasses.replace(found, cluster=cluster)


def found(made: Scenario, shards: Sequence[AnyShard]) -> tuple[float, float]:
    """Seconds of an epoch, the mean of fifteen, and bytes between graph servers."""
    sizes = made.graph
    data = abstract_data(DataShape(sizes.vertices, sizes.edges, sizes.features, sizes.classes))
    model = take_apart(build_model(made.config, data), data.graph)
    loss = Objective.of(None, data).rows
    pipeline = timed_pipeline(model, data, shards, made.pipeline, cluster=made.cluster, loss=loss)
    run = pipeline.start(pipeline.parts.params, None, pipeline.parts.state)
    try:
        seconds = [run.run_epoch().seconds for _ in range(16)]
        return float(np.mean(seconds[1:])), run.counters()["message_bytes"]
    finally:
        run.close()


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Random, with lognormal degrees."""
    rng = np.random.default_rng(0)
    degrees = np.exp(SPREAD * rng.standard_normal(VERTICES))
    ends = rng.choice(VERTICES, (2, VERTICES * DEGREE // 2), p=degrees / degrees.sum())
    return Graph.from_coo(*ends, VERTICES).symmetrise()


@pytest.fixture(scope="module")
def shards(graph: Graph) -> list[AnyShard]:
    """The graph's, of servers and intervals chosen at random."""
    bounds = even_bounds(VERTICES, SERVERS * INTERVALS).tolist()
    firsts = range(0, SERVERS * INTERVALS, INTERVALS)
    cuts = tuple(tuple(bounds[first : first + INTERVALS + 1]) for first in firsts)
    order = np.random.default_rng(1).permutation(VERTICES)
    return list(Cutting(graph, Layout(order, tuple(bounds[::INTERVALS]), cuts)))


PLAIN = {"pipeline__mode": "async", "pipeline__staleness": 0, "pipeline__freshness": 0.0}


@pytest.mark.parametrize("backend", ["functions", "cpu"])
@pytest.mark.parametrize(
    "mode", [{"pipeline__mode": "pipe"}, PLAIN, {"pipeline__mode": "async", "pipeline__stability_gate": False}]
)
@pytest.mark.parametrize(
    ("model", "options"), [("gcn", {}), ("gat", {"model__heads": 1}), ("sage", {"model__aggregation": "max"})]
)
def test_an_epoch_takes_what_it_does_on_the_graph(*, graph, shards, model, options, mode, backend):
    sizes = GraphSizes(VERTICES, graph.num_edges, 64, 10, SPREAD)
    made = scenario(model, sizes, model__hidden_features=16, **options, **mode).on(backend)
    by_sizes = found(made, sizes.degrees.shards(SERVERS, INTERVALS))
    assert by_sizes == pytest.approx(found(made, shards), rel=0.03)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_simulated(model):
    made = scenario(model, GraphSizes(2000, 20_000, 16, 4))
    assert simulate(made, epochs=2).epoch > 0
