from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph.datasets import block_model
from dorylax.graph.datasets.block_model import BlockModel, power_law_propensities, systematic_rounding
from dorylax.graph.graph import Graph


def model(
    num_vertices: int = 3000, num_edges: int = 60_000, num_classes: int = 5, homophily: float = 0.6
) -> BlockModel:
    communities = (np.random.default_rng(1).permutation(num_vertices) % num_classes).astype(np.int32)
    return BlockModel(communities, power_law_propensities(num_vertices, 2.5, 3), num_edges, homophily, 3)


def ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    offsets = graph.incoming.offsets
    return graph.incoming.neighbours, np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


@pytest.fixture(params=["one block", "many blocks"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    if request.param == "many blocks":
        monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
        assert model()._num_blocks > 5
    return model().sample()


def test_is_what_it_says_of_itself(graph: Graph) -> None:
    sources, targets = ends(graph)
    assert (graph.num_vertices, graph.num_edges, graph.symmetric, graph.self_loops) == (3000, 60_000, True, "none")
    assert (graph.incoming.offsets.dtype, sources.dtype) == (np.int64, np.int32)
    assert graph.incoming.offsets[[0, -1]].tolist() == [0, 60_000]
    assert (sources != targets).all()
    key, reverse = targets.astype(np.int64) << 32 | sources, sources.astype(np.int64) << 32 | targets
    assert (np.diff(key) >= 0).all()  # rows sorted by source
    assert np.array_equal(np.sort(reverse), key)  # symmetric with multiplicities


def test_homophily_and_degrees_are_as_asked(graph: Graph) -> None:
    sources, targets = ends(graph)
    made = model()
    inside = (made.communities[sources] == made.communities[targets]).mean()
    assert abs(inside - 0.6) < 0.01
    degrees = np.diff(graph.incoming.offsets)
    expected = made.propensities * (60_000 / made.propensities.sum())
    spread = (degrees - expected) / np.sqrt(expected)
    assert abs(spread.mean()) < 0.1
    # Poisson would be 1; loops are excluded and the edges of a tile are fixed, so a little less
    assert 0.8 < spread.var() < 1.1


def test_edges_go_between_all_blocks_and_communities_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
    made = model()
    sources, targets = ends(made.sample())
    third = 1000
    for community in range(5):
        where = made.communities[targets] == community
        same = made.communities[sources] == community
        mass = np.bincount(np.arange(3000) // third, made.propensities * (made.communities == community))
        counts = np.bincount(sources[where & same] // third, minlength=3)
        assert np.allclose(counts / counts.sum(), mass / mass.sum(), atol=0.04)


def test_does_not_depend_on_how_many_edges_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model(num_vertices=300).sample()  # few vertices: many self-loops are drawn again
    monkeypatch.setattr(block_model, "_EDGES_AT_A_TIME", 777)
    parts = model(num_vertices=300).sample()
    assert np.array_equal(parts.incoming.neighbours, whole.incoming.neighbours)
    assert np.array_equal(parts.incoming.offsets, whole.incoming.offsets)


def test_many_small_communities_one_after_another() -> None:
    communities = np.repeat(np.arange(100, dtype=np.uint8), 30)
    made = BlockModel(communities, power_law_propensities(3000, 2.5, 3), 60_000, 0.7, 3)
    sources, targets = ends(made.sample())
    assert abs((communities[sources] == communities[targets]).mean() - 0.7) < 0.01
    assert len(made._edges.counts) < made._num_blocks * 110  # nothing for tiles and communities that do not meet


def test_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
    graph = model().sample()
    found = hashlib.sha256(graph.incoming.offsets.tobytes() + graph.incoming.neighbours.tobytes()).hexdigest()
    assert found == GOLDEN_GRAPH


def test_homophily_one_keeps_all_edges_inside_and_chance_level_ignores_communities() -> None:
    made = model(homophily=1.0)
    sources, targets = ends(made.sample())
    assert (made.communities[sources] == made.communities[targets]).all()
    made = model(homophily=0.2)
    sources, targets = ends(made.sample())
    assert abs((made.communities[sources] == made.communities[targets]).mean() - 0.2) < 0.02


@pytest.mark.parametrize("num_vertices", [2, 3, 7])
def test_the_smallest_graphs(num_vertices: int) -> None:
    # Two communities of one vertex each have no pair inside: all edges then go by chance.
    graph = model(num_vertices, num_edges=20, num_classes=2).sample()
    sources, targets = ends(graph)
    assert graph.num_edges == 20
    assert (sources != targets).all()
    assert model(num_vertices, num_edges=0, num_classes=2).sample().num_edges == 0


def test_propensities_follow_the_power_law() -> None:
    theta = power_law_propensities(200_000, 2.5, 0)
    assert (theta.min(), theta.dtype) == (4, np.uint16)
    assert 300 < theta.max() <= 400
    # P(θ > t) = (t/4)^-1.5, less the cut at ratio 100; between integers because of rounding
    for t in (8.5, 16.5, 40.5):
        assert abs((theta > t).mean() / ((t / 4) ** -1.5) - 1) < 0.03


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_rounding_is_exact_in_total_and_near_in_each(weights: list[float], total: int, uniform: float) -> None:
    w = np.array(weights)
    if w.sum() < 1e-100:
        w[0] = 1.0
    counts = systematic_rounding(w, total, uniform)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (abs(counts - w / w.sum() * total) < 1 + 1e-6 * total**0.5).all()
    assert (counts[w == 0] == 0).all()


GOLDEN_GRAPH = "df665b7bff4d98b577f4ec2bd034407cec09d294c4b5fb92bcd751ac1af5720c"
