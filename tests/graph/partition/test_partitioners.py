"""Promises of all partitioners, and LDG, ranges and random parts against their definitions."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import PartitionError, graph_digest, partition, report
from dorylax.graph.partition.ldg import ldg, visits
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.partition.simple import ranges

METHODS = typing.get_args(Method)
BALANCES = ("vertices", "edges")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("communities", size="tiny").graph


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("method", METHODS)
def test_every_vertex_has_a_server_and_servers_are_even(graph, method, balance) -> None:
    made = partition(graph, 4, method=method, balance=balance, seed=3)
    assert made.parts.shape == (graph.num_vertices,)
    assert made.parts.dtype == np.int32
    assert (made.num_parts, made.method, made.balance, made.seed) == (4, method, balance, 3)
    assert made.graph_digest == graph_digest(graph)
    weights = np.ones(graph.num_vertices) if balance == "vertices" else np.diff(graph.incoming.offsets) + 1
    loads = np.bincount(made.parts, weights, 4)
    assert loads.max() / loads.mean() < 1.05


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides(graph, method) -> None:
    first, again, other = (partition(graph, 3, method=method, seed=seed).parts for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (method == "range")


def test_cut_edges_by_method(graph) -> None:
    shares = [report(graph, partition(graph, 4, method=method)).cut_share for method in ("metis", "ldg", "random")]
    assert shares[0] < shares[1] < shares[2] - 0.1


STAR = Graph.from_coo([0] * 9, range(1, 10), 10)
GRAPHS = {"empty": Graph.from_coo([], [], 10), "star": STAR, "messy": messy_graph(10, 40)}


@pytest.mark.parametrize("servers", [1, 7, 9, 10])
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", GRAPHS)
def test_no_server_is_empty(name, method, balance, servers) -> None:
    made = partition(GRAPHS[name], servers, method=method, balance=balance)
    assert np.bincount(made.parts, minlength=servers).min() >= 1
    assert made.parts.max() == servers - 1


@pytest.mark.parametrize(
    ("servers", "options", "told"),
    [
        (0, {}, r"servers must be in 1 … 10 \(the graph's vertices\), got 0"),
        (11, {}, r"servers must be in 1 … 10 .*, got 11"),
        (2, {"method": "meits"}, "method must be one of metis, ldg, range, random, got 'meits'"),
        (2, {"balance": "rows"}, "balance must be one of vertices, edges, got 'rows'"),
        (2, {"seed": -1}, "seed must be in 0 … 2147483647, got -1"),
    ],
)
def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch, servers, options, told) -> None:
    # The checks are for callers without beartype, whose own errors would come first here.
    with pytest.raises(PartitionError, match=told):
        _unchecked(partition)(STAR, servers, **options)


def _unchecked(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


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


def test_ranges_by_edges_are_cut_nearest_to_even_shares() -> None:
    degrees = np.array([4, 0, 0, 2, 0, 7, 0, 0, 0, 1])
    graph = Graph.from_coo(np.zeros(degrees.sum(), int), np.repeat(np.arange(10), degrees), 10)
    # Weights 5 1 1 3 1 8 1 1 1 2, shares of 8: 5+1+1 | 3+1 … ends at 7 or 10 for 8, at 11 or 19 for 16.
    assert ranges(graph, 3, "edges").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("hub", [0, 5, 9])
def test_a_hub_leaves_no_range_empty(hub: int) -> None:
    graph = Graph.from_coo(np.zeros(1000, int), np.full(1000, hub), 10)
    parts = ranges(graph, 8, "edges")
    assert (np.diff(parts) >= 0).all()
    assert np.bincount(parts, minlength=8).min() >= 1
