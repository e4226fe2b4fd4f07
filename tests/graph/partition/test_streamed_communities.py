"""Communities of a graph that is read in a stream, beside those that are found in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import label_propagation, locality, streamed_communities
from dorylax.graph.partition.streamed_communities import (
    communities_within,
)
from dorylax.graph.partition.streamed_communities import streamed_communities as find
from dorylax.graph.stream.edge_rows import EdgeRows, Source
from dorylax.graph.validate import GraphError

ROOM = 400 << 20


def rows_of(graph: Graph) -> EdgeRows:
    return EdgeRows(*map(Source.held, graph.host_rows()))


def inside(graph: Graph, labels: np.ndarray) -> float:
    """The fraction of edges inside a community."""
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    return float(np.mean(labels[targets] == labels[graph.incoming.neighbours]))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("communities", size="small", num_features=1, num_classes=20).graph


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of clusters of 20,000 vertices are contracted once more, and blocks are many."""
    monkeypatch.setattr(label_propagation, "COARSE", 300)
    monkeypatch.setattr(streamed_communities, "ENTRIES", 1 << 14)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("held", [16, 100_000], ids=["one level", "levels on disk"])
def test_nearly_as_good_as_in_memory(graph: Graph, tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_communities, "_HELD_HEAVIEST", held)
    metis, ours = locality.communities(graph), find(rows_of(graph), tmp_path, ROOM)
    assert ours.dtype == np.int32
    assert inside(graph, ours) > 0.85 * inside(graph, metis)
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
    assert inside(directed, labels) > 0.8


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
    assert inside(graph, labels) > 0.95 * inside(graph, locality.communities(graph))
    assert told[-1] == (graph.num_edges, graph.num_edges)
    monkeypatch.setattr(streamed_communities, "IN_MEMORY_BYTES_PER_VERTEX", ROOM // 20_000 + 1)
    streamed = communities_within(rows_of(graph), tmp_path, ROOM)
    np.testing.assert_array_equal(streamed, find(rows_of(graph), tmp_path, ROOM))
    assert not np.array_equal(streamed, labels)
    assert communities_within(rows_of(messy_graph()), tmp_path, 10).tolist() == [0] * 20


def test_too_little_room(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"communities of 20,000 vertices take at least \d+ MiB .* and 1 MiB are left"):
        find(rows_of(graph), tmp_path, 2**20)
