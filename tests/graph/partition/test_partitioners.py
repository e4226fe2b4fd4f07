"""What every partitioner promises."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.graph.partition import Partition, PartitionError, graph_digest, partition, report
from dorylax.graph.partition.partitioners import Method

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


def test_a_partition_can_be_made_by_hand() -> None:
    Partition(np.zeros(10, np.int32), 1, "mine", "vertices", 0, graph_digest(STAR)).check(STAR)
