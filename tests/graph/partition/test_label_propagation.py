"""Label propagation finds communities as METIS does, and respects the sizes it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import label_propagation, locality, locality_order
from dorylax.graph.partition.label_propagation import (
    Rows,
    cluster_limit,
    parts_of,
    refine,
)
from dorylax.graph.partition.metis import undirected

PARTS = 24


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are contracted too."""
    monkeypatch.setattr(label_propagation, "COARSE", 300)


@pytest.fixture(scope="module")
def hidden() -> tuple[Graph, np.ndarray]:
    """24 communities of 250 vertices in random order, each vertex with about 8 edges inside and 4 outside."""
    rng = np.random.default_rng(0)
    community = rng.permutation(np.repeat(np.arange(PARTS), 250))
    members = np.argsort(community, kind="stable").reshape(PARTS, 250)
    one = rng.integers(0, 6000, 36_000)
    other = np.where(
        rng.random(36_000) < 2 / 3, members[community[one], rng.integers(0, 250, 36_000)], rng.integers(0, 6000, 36_000)
    )
    return Graph.from_coo(one, other, 6000).symmetrise(), community


def _inside(graph: Graph, labels: np.ndarray) -> float:
    """The fraction of edges inside a community."""
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    return float(np.mean(labels[targets] == labels[graph.incoming.neighbours]))


def _unit(offsets: np.ndarray, neighbours: np.ndarray) -> Rows:
    return Rows(offsets, neighbours, None, np.ones(len(offsets) - 1, np.int64))


def _parts(graph: Graph, num_parts: int) -> np.ndarray:
    return parts_of(_unit(*undirected(graph)), num_parts, cluster_limit(graph.num_vertices, num_parts), seed=0)


@pytest.mark.usefixtures("coarse")
def test_hidden_communities_are_found(hidden: tuple[Graph, np.ndarray]) -> None:
    graph, community = hidden
    parts = _parts(graph, PARTS)
    assert parts.dtype == np.int32
    assert _inside(graph, parts) > 0.9 * _inside(graph, community)
    assert np.bincount(parts, minlength=PARTS).max() <= 1.5 * 250
    np.testing.assert_array_equal(parts, _parts(graph, PARTS))


def test_refining_counts_weights_and_leaves_room(hidden: tuple[Graph, np.ndarray]) -> None:
    """All want into part 0, which has room for half as much again as the mean."""
    weights = np.random.default_rng(2).integers(1, 9, 400)
    star = Graph.from_coo(np.zeros(399, np.int64), np.arange(1, 400), 400)
    offsets, neighbours = undirected(star)
    parts = np.arange(400, dtype=np.int32) % 4
    refine(Rows(offsets, neighbours, np.ones(len(neighbours), np.int32), weights), parts, 4)
    heaviest = np.bincount(parts, weights=weights).max()
    assert 1.45 * weights.sum() / 4 < heaviest <= 1.5 * weights.sum() / 4


@pytest.mark.usefixtures("coarse")
def test_large_graphs_are_ordered_nearly_as_well_as_by_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load("communities", size="small", num_features=1, num_classes=20).graph
    parts = []
    for most in (graph.num_vertices, graph.num_vertices - 1):
        monkeypatch.setattr(locality, "MOST_FOR_METIS", most)
        parts.append(locality.communities(graph))
    metis, ours = (_inside(graph, labels) for labels in parts)
    assert not np.array_equal(*parts)
    assert ours > 0.9 * metis
    assert sorted(locality_order(graph).tolist()) == list(range(20_000))


def test_a_web_graph(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a site lie together: most links stay within a part, in 856 parts."""
    file = real_data / "web-google.npz"
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    graph = Graph.from_folder(file)
    monkeypatch.setattr(locality, "MOST_FOR_METIS", graph.num_vertices - 1)
    assert _inside(graph, locality.communities(graph)) > 0.8
