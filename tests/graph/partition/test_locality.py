"""Communities lie together."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import locality_order
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
    near = [
        np.mean(np.abs(g.incoming.neighbours - np.repeat(np.arange(20_000), np.diff(g.incoming.offsets))) < 2000)
        for g in (graph, moved)
    ]
    assert near[1] > 2 * near[0]


@pytest.mark.parametrize("graph", [Graph.from_coo([], [], 3000), Graph.from_coo([0] * 2999, range(1, 3000), 3000)])
def test_graphs_without_communities(graph: Graph) -> None:
    assert np.bincount(communities(graph)).max() < 2000
    assert sorted(locality_order(graph).tolist()) == list(range(3000))
