from __future__ import annotations

from dorylax.simulation.run import Inputs
from dorylax.simulation.scenario import Scenario

SETTINGS = {"data.name": "communities", "data.size": "tiny", "pipeline.servers": 2, "pipeline.intervals": 3}


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
    assert len({id(shards) for _, _, shards in found}) == len(found)
