"""Layouts (servers consecutive, intervals even, communities together), and reports against counting one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.graphs import messy_graph, pairs

from dorylax.graph.datasets import load
from dorylax.graph.partition import PartitionError, lay_out, partition, report
from dorylax.graph.partition.layout import choose_intervals
from dorylax.graph.partition.quality import interval_balance
from dorylax.graph.partition.simple import even_bounds


@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("intervals", [1, 3])
@pytest.mark.parametrize("method", ["metis", "random"])
def test_every_server_has_its_rows_and_even_intervals(servers: int, intervals: int, method) -> None:
    graph = messy_graph(30, 100)
    made = partition(graph, servers, method=method)
    layout = lay_out(graph, made, intervals)
    assert sorted(layout.order.tolist()) == list(range(30))
    assert (layout.num_servers, layout.num_intervals) == (servers, servers * intervals)
    assert (layout.server_bounds[0], layout.server_bounds[-1]) == (0, 30)
    for server, bounds in enumerate(layout.interval_bounds):
        assert (bounds[0], bounds[-1]) == layout.server_bounds[server : server + 2]
        assert len(bounds) == intervals + 1
        assert np.ptp(np.diff(bounds)) <= 1
        assert (made.parts[layout.order[bounds[0] : bounds[-1]]] == server).all()
    flat = [b for bounds in layout.interval_bounds for b in bounds[:-1]] + [30]
    assert layout.all_bounds.tolist() == flat
    np.testing.assert_array_equal(lay_out(graph, made, intervals).order, layout.order)


def test_in_edges_are_balanced_and_communities_together() -> None:
    data = load("communities", size="small", num_features=1, label_noise=0.0, homophily=0.9)
    graph = data.graph
    layout = lay_out(graph, partition(graph, 2), 8)
    assert interval_balance(graph, layout) < 1.02
    changes = np.count_nonzero(np.diff(data.labels[layout.order]))
    assert changes < 0.15 * np.count_nonzero(np.diff(data.labels))


@pytest.mark.parametrize(("intervals", "most"), [(2, 12), (8, 40), (30, 160)])  # at random: 24, 96 and about 350
def test_communities_of_very_different_density(intervals: int, most: int) -> None:
    labels = np.repeat(np.arange(12, dtype=np.int32), 100)
    degrees = np.random.default_rng(0).poisson((1 + labels) ** 2).astype(np.int64)
    counts = np.diff(even_bounds(1200, intervals))
    chosen = choose_intervals(labels, degrees, counts)
    np.testing.assert_array_equal(np.bincount(chosen), counts)
    loads = np.bincount(chosen, degrees)
    assert loads.max() / loads.mean() < 1.03
    pieces = len(np.unique(np.stack([labels, chosen]), axis=1).T)
    assert pieces <= most


def test_what_cannot_be() -> None:
    graph = messy_graph(20, 50)
    made = partition(graph, 3, method="range")
    with pytest.raises(PartitionError, match=r"7 intervals per server are more than the 6 vertices of server 1"):
        lay_out(graph, made, 7)
    with pytest.raises(PartitionError, match="at least 1 interval, got 0"):
        lay_out(graph, made, 0)
    with pytest.raises(PartitionError, match="another graph"):
        lay_out(messy_graph(20, 50, seed=1), made, 1)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("servers", [1, 3])
def test_against_counting(monkeypatch: pytest.MonkeyPatch, servers: int, symmetric: bool) -> None:
    monkeypatch.setattr("dorylax.graph.rows.spans.__defaults__", (7,))
    graph = messy_graph(20, 60)
    graph = graph.symmetrise() if symmetric else graph
    made = partition(graph, servers, method="random")
    found = report(graph, made, forward=[100, 8], backward=[5])
    part = made.parts.tolist()
    edges = pairs(graph)
    into = {(part[v], u) for u, v in edges if part[u] != part[v]}
    out = {(part[u], v) for u, v in edges if part[u] != part[v]}
    every = range(servers)
    assert found.cut_edges == sum(part[u] != part[v] for u, v in edges)
    assert found.num_edges == len(edges)
    assert found.vertices == tuple(part.count(s) for s in every)
    assert found.edges == tuple(sum(part[v] == s for _, v in edges) for s in every)
    assert found.ghosts_in == tuple(sum(reader == s for reader, _ in into) for s in every)
    assert found.ghosts_out == tuple(sum(reader == s for reader, _ in out) for s in every)
    received = [sum(108 * (r == s) for r, _ in into) + sum(5 * (r == s) for r, _ in out) for s in every]
    sent = [sum(108 * (part[u] == s) for _, u in into) + sum(5 * (part[u] == s) for _, u in out) for s in every]
    assert (found.received_bytes, found.sent_bytes) == (tuple(received), tuple(sent))
    assert found.edge_balance == pytest.approx(max(found.edges) / (len(edges) / servers))
    assert found.vertex_balance == pytest.approx(max(found.vertices) / (20 / servers))
    assert json.loads(json.dumps(found.to_dict()))["cut_share"] == found.cut_edges / len(edges)


def test_interval_balance() -> None:
    graph = messy_graph(20, 60)
    layout = lay_out(graph, partition(graph, 2), 3)
    moved = graph.reorder(layout.order)
    worst = 0.0
    for bounds in layout.interval_bounds:
        edges = np.diff(moved.incoming.offsets[list(bounds)])
        worst = max(worst, edges.max() / edges.mean())
    assert interval_balance(graph, layout) == pytest.approx(worst)
