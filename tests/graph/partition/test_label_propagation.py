"""Label propagation in memory and in a stream finds communities as METIS does, and respects sizes and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.graphs import ends, messy_graph

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.edge_rows import EdgeRows, Source
from dorylax.graph.partition import label_propagation, locality, locality_order
from dorylax.graph.partition.locality import communities_within
from dorylax.graph.partition.locality import streamed_communities as find
from dorylax.graph.validate import GraphError


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are contracted too, and blocks of rows are many."""
    monkeypatch.setattr(label_propagation, "COARSE", 300)
    monkeypatch.setattr(locality, "ENTRIES", 1 << 14)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("communities", size="small", num_features=1, num_classes=20).graph


def _inside(graph: Graph, labels: np.ndarray) -> float:
    """The fraction of edges inside a community."""
    return float(np.mean(np.equal(*(labels[one] for one in ends(graph)))))


@pytest.mark.usefixtures("coarse")
def test_large_graphs_are_ordered_nearly_as_well_as_by_metis(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
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


ROOM = 400 << 20


def rows_of(graph: Graph) -> EdgeRows:
    return EdgeRows(*map(Source.held, graph.host_rows()))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("held", [16, 100_000], ids=["one level", "levels on disk"])
def test_nearly_as_good_as_in_memory(graph: Graph, tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locality, "_HELD_HEAVIEST", held)
    metis, ours = locality.communities(graph), find(rows_of(graph), tmp_path, ROOM)
    assert ours.dtype == np.int32
    assert _inside(graph, ours) > 0.85 * _inside(graph, metis)
    sizes = np.bincount(ours)
    assert sizes.max() <= 1.5 * 20_000 / len(np.bincount(metis))
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(ours, find(rows_of(graph), tmp_path, ROOM))


@pytest.mark.usefixtures("coarse")
def test_a_directed_graph_with_ends(tmp_path: Path) -> None:
    """Rows of one direction, many of which are empty."""
    rng = np.random.default_rng(0)
    community = np.repeat(np.arange(20), 250)
    sources = rng.integers(0, 5000, 60_000) // 2 * 2  # odd vertices have no out-edges
    targets = community[sources] * 250 + rng.integers(0, 250, 60_000)
    directed = Graph.from_coo(targets, sources, 5000)  # its rows by target are those by source
    labels = find(rows_of(directed), tmp_path, ROOM)
    assert _inside(directed, labels) > 0.8


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_coo([], [], 3000),
        Graph.from_coo([0] * 2999, range(1, 3000), 3000),
        Graph.from_coo(range(2999), range(1, 3000), 3000),
        Graph.from_coo(range(3000), range(3000), 3000),
    ],
    ids=["no edges", "star", "path", "loops"],
)
@pytest.mark.usefixtures("coarse")
def test_graphs_without_communities(graph: Graph, tmp_path: Path) -> None:
    labels = find(rows_of(graph), tmp_path, ROOM)
    assert labels.shape == (3000,)
    assert np.bincount(labels).max() <= 1.5 * 1000 + 1


def test_with_room_for_the_sample_it_is_cut_in_memory(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    labels = communities_within(rows_of(graph), tmp_path, 2**30, lambda *words: told.append(words))
    assert _inside(graph, labels) > 0.95 * _inside(graph, locality.communities(graph))
    assert told[-1] == (graph.num_edges, graph.num_edges)
    monkeypatch.setattr(locality, "IN_MEMORY_BYTES_PER_VERTEX", ROOM // 20_000 + 1)
    streamed = communities_within(rows_of(graph), tmp_path, ROOM)
    np.testing.assert_array_equal(streamed, find(rows_of(graph), tmp_path, ROOM))
    assert not np.array_equal(streamed, labels)
    assert communities_within(rows_of(messy_graph()), tmp_path, 10).tolist() == [0] * 20


def test_too_little_room(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"communities of 20,000 vertices take at least \d+ MiB .* and 1 MiB are left"):
        find(rows_of(graph), tmp_path, 2**20)
