"""Communities lie together; orders are read from the cache, and computed if anything is wrong with the file."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from support.graphs import ends

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import cached_locality_order, locality, locality_order
from dorylax.graph.partition.locality import communities


def _hidden_cliques(count: int, size: int, seed: int = 0) -> tuple[Graph, np.ndarray]:
    """Directed cliques whose vertices are scattered, and the clique of each vertex."""
    clique = np.random.default_rng(seed).permutation(np.repeat(np.arange(count), size))
    members = [np.flatnonzero(clique == c) for c in range(count)]
    sources = np.concatenate([np.repeat(m, size) for m in members])
    targets = np.concatenate([np.tile(m, size) for m in members])
    keep = sources < targets
    return Graph.from_coo(sources[keep], targets[keep], count * size), clique


def test_cliques_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dorylax.graph.partition.locality.COMMUNITY", 32)
    graph, clique = _hidden_cliques(8, 32)
    order = locality_order(graph)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(256))
    assert np.count_nonzero(np.diff(clique[order])) == 7
    np.testing.assert_array_equal(order, locality_order(graph))


def test_neighbours_come_nearer() -> None:
    graph = load("communities", size="small", num_features=1).graph
    moved = graph.reorder(locality_order(graph))
    near = [np.mean(np.abs(np.subtract(*ends(one))) < 2000) for one in (graph, moved)]
    assert near[1] > 2 * near[0]


@pytest.mark.parametrize("graph", [Graph.from_coo([], [], 3000), Graph.from_coo([0] * 2999, range(1, 3000), 3000)])
def test_graphs_without_communities(graph: Graph) -> None:
    assert np.bincount(communities(graph)).max() < 2000
    assert sorted(locality_order(graph).tolist()) == list(range(3000))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where orders are kept, of graphs of any size."""
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locality, "WORTH_KEEPING", 0)
    return tmp_path / "cache" / "orders-1"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The vertices of each graph whose order is computed."""
    calls: list[int] = []
    compute = locality.communities_of_sample

    def counted(rows: np.ndarray, sources: np.ndarray, num_vertices: int) -> np.ndarray:
        calls.append(num_vertices)
        return compute(rows, sources, num_vertices)

    monkeypatch.setattr(locality, "communities_of_sample", counted)
    return calls


def _graph(seed: int = 0, num_vertices: int = 2000) -> Graph:
    ends = np.random.default_rng(seed).integers(0, num_vertices, (2, 5 * num_vertices))
    return Graph.from_coo(*ends, num_vertices)


def _only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_what_is_kept_is_what_is_computed(folder: Path, computed: list[int]) -> None:
    graph = _graph()
    expected = locality_order(graph)
    del computed[:]
    for _ in range(2):
        order = cached_locality_order(graph)
        assert order.dtype == np.int64
        np.testing.assert_array_equal(order, expected)
    assert computed == [2000]
    assert _only_file(folder).stat().st_size < 4 * 2000 + 256


def test_another_graph_or_version_has_another_file(
    folder: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph()
    cached_locality_order(graph)
    cached_locality_order(_graph(1))
    cached_locality_order(graph.reorder(np.arange(2000)[::-1]))
    more = Graph.from_csr(np.append(graph.incoming.offsets, graph.num_edges), graph.incoming.neighbours)
    assert len(cached_locality_order(more)) == 2001
    monkeypatch.setattr(locality, "VERSION", 2)
    cached_locality_order(graph)
    assert computed == [2000, 2000, 2000, 2001, 2000]
    assert len(list(folder.iterdir())) == 5


def test_small_graphs_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_locality_order(_graph(num_vertices=500)).tolist() == list(range(500))
    monkeypatch.setattr(locality, "WORTH_KEEPING", 2001)
    np.testing.assert_array_equal(cached_locality_order(_graph()), locality_order(_graph()))
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "text"])
def test_a_wrong_file_is_computed_again(
    folder: Path, computed: list[int], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    graph = _graph()
    expected = cached_locality_order(graph)
    file = _only_file(folder)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[3000] ^= 1
    file.write_bytes({"bit": bytes(flipped), "cut": whole[:-100], "empty": b"", "text": b"nothing\n" * 99}[damage])
    del computed[:]
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(cached_locality_order(graph), expected)
    assert computed == [2000]
    assert [str(file) in message for message in caplog.messages] == [True]
    assert file.read_bytes() == whole


@pytest.mark.parametrize("obstacle", ["a file in place of the folder", "a folder in place of the file"])
def test_what_cannot_be_kept_is_computed_every_time(
    folder: Path, computed: list[int], caplog: pytest.LogCaptureFixture, obstacle: str
) -> None:
    graph = _graph()
    expected = cached_locality_order(graph)
    file = _only_file(folder)
    file.unlink()
    if obstacle == "a folder in place of the file":
        file.mkdir()
        (file / "held").touch()
    else:
        folder.rmdir()
        folder.touch()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_array_equal(cached_locality_order(graph), expected)
    assert computed == [2000, 2000, 2000]
    assert any("could not keep" in message for message in caplog.messages)
    assert not list(folder.parent.rglob(".*"))
