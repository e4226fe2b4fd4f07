"""Scenarios that compare two ways of training."""

from __future__ import annotations

import dataclasses

import pytest

from dorylax.simulation.comparisons import COMPARISONS, content
from dorylax.simulation.paper import dollars_of_paper
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes


def test_what_was_published():
    published = {name: (one.measure, one.published) for name, one in COMPARISONS.items()}
    assert published == {
        "paper/naive-serverless": ("epoch_seconds", 21.0),
        "paper/burst-instances": ("dollars", 2.2),
        "paper/sampled": ("epoch_seconds", 3.76),
    }


@pytest.mark.parametrize("name", COMPARISONS)
def test_both_sides_of_a_small_graph(name):
    comparison = COMPARISONS[name]
    for scenario in comparison.scenarios():
        assert (scenario.backend, scenario.config.model.name.partition(":")[2]) == ("functions", "GatherFirstGCN")
        small = dataclasses.replace(scenario, graph=GraphSizes(20_000, 100_000, 30, 5))
        one, other = (side.simulate(small, epochs=2, on_epoch=None) for side in (comparison.one, comparison.other))
        ratio = comparison.ratio(one, other)
        expected = one.epoch / other.epoch
        if comparison.measure == "dollars":
            expected = dollars_of_paper(one) / dollars_of_paper(other)
            assert other == simulate(small, epochs=2)
        else:
            assert other == simulate(small.on("cpu") if comparison.other.name == "CPU servers" else small, epochs=2)
        assert ratio == pytest.approx(expected)
        found = content(comparison, [(scenario.name, one, other)])
        assert found["rows"][0]["ratio"] == ratio
        assert found["rows"][0][comparison.one.name]["epoch_seconds"] == one.epoch
