from __future__ import annotations

import dataclasses

from dorylax.simulation.inputs import Inputs
from dorylax.simulation.scenario import GraphSizes, Scenario

SIZES = GraphSizes(10_000, 200_000, 64, 10)
SETTINGS = {"data.name": "communities", "data.size": "tiny", "pipeline.servers": 2, "pipeline.intervals": 3}


def test_what_is_the_same_is_made_once():
    inputs = Inputs()
    first = inputs.of(Scenario.of("any", SETTINGS))
    again = inputs.of(Scenario.of("any", {**SETTINGS, "pipeline.mode": "async", "train.epochs": 3}))
    assert again.data is first.data
    assert again.shards is first.shards
    other = inputs.of(Scenario.of("any", {**SETTINGS, "pipeline.servers": 3}))
    assert other.data is first.data
    assert len(other.shards) == 3


def test_whatever_decides_shards_makes_new_ones():
    inputs = Inputs()
    found = [
        inputs.of(Scenario.of("any", {**SETTINGS, **changed}))
        for changed in (
            {},
            {"pipeline.intervals": 4},
            {"pipeline.partitioner": "random"},
            {"pipeline.partitioner": "random", "pipeline.balance": "edges"},
            {"train.seed": 1},
            {"data.split_seed": 1},
        )
    ]
    assert len({id(one.shards) for one in found}) == len(found)


def test_graphs_of_which_sizes_are_known():
    inputs = Inputs()
    base = Scenario.of("any", {"pipeline.servers": 2}, graph=SIZES)
    first = inputs.of(base)
    assert (first.shape.num_vertices, first.shape.num_features) == (10_000, 64)
    assert inputs.of(base.on("cpu")).shards is first.shards
    larger = inputs.of(dataclasses.replace(base, graph=dataclasses.replace(SIZES, edges=300_000)))
    assert sum(shard.last_edge - shard.first_edge for shard in larger.shards) == 300_000
