"""Streaming LDG against the algorithm as the paper has it."""

from __future__ import annotations

import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.partition.ldg import ldg, visits


def plain_ldg(graph: Graph, num_parts: int, balance: str, seed: int) -> list[int]:
    num_vertices = graph.num_vertices
    near: list[list[int]] = [[] for _ in range(num_vertices)]
    weights = [1] * num_vertices
    for target in range(num_vertices):
        for k in range(graph.incoming.offsets[target], graph.incoming.offsets[target + 1]):
            source = int(graph.incoming.neighbours[k])
            near[target].append(source)
            if not graph.symmetric:
                near[source].append(target)
            weights[target] += balance == "edges"
    capacity = sum(weights) / num_parts
    part = [-1] * num_vertices
    loads = [0.0] * num_parts
    for v in (v for first, last in visits(num_vertices, seed) for v in range(first, last)):
        counts = [sum(part[u] == p for u in near[v] if u != v) for p in range(num_parts)]
        scores = [count * (1 - load / capacity) for count, load in zip(counts, loads, strict=True)]
        best = max(range(num_parts), key=scores.__getitem__)
        if scores[best] <= 0:
            best = min(range(num_parts), key=loads.__getitem__)
        part[v] = best
        loads[best] += weights[v]
    return part


@pytest.mark.parametrize("blocks", [1, 7, 64])
@pytest.mark.parametrize("balance", ["vertices", "edges"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_as_published(monkeypatch: pytest.MonkeyPatch, blocks: int, balance, symmetric: bool) -> None:
    monkeypatch.setattr("dorylax.graph.partition.ldg._BLOCKS", blocks)
    graph = messy_graph(60, 300, seed=2)
    graph = graph.symmetrise() if symmetric else graph
    for seed in range(3):
        assert ldg(graph, 4, balance, seed).tolist() == plain_ldg(graph, 4, balance, seed)


def test_each_row_comes_once_and_small_graphs_come_in_random_order() -> None:
    for size in (0, 1, 255, 256, 5000):
        came = [row for first, last in visits(size, 3) for row in range(first, last)]
        assert sorted(came) == list(range(size))
    assert [last - first for first, last in visits(200, 3)] == [1] * 200
    assert list(visits(200, 3)) != list(visits(200, 4))
    assert max(last - first for first, last in visits(10_000_000, 3)) == 4096
