"""The report against counting one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph.partition import lay_out, partition, report
from dorylax.graph.partition.quality import interval_balance


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("servers", [1, 3])
def test_against_counting(monkeypatch: pytest.MonkeyPatch, servers: int, symmetric: bool) -> None:
    monkeypatch.setattr("dorylax.graph.rows.spans.__defaults__", (7,))
    graph = messy_graph(20, 60)
    graph = graph.symmetrise() if symmetric else graph
    made = partition(graph, servers, method="random")
    found = report(graph, made, forward=[100, 8], backward=[5])
    part = made.parts.tolist()
    targets = np.repeat(np.arange(20), np.diff(graph.incoming.offsets)).tolist()
    pairs = list(zip(graph.incoming.neighbours.tolist(), targets, strict=True))
    into = {(part[v], u) for u, v in pairs if part[u] != part[v]}
    out = {(part[u], v) for u, v in pairs if part[u] != part[v]}
    every = range(servers)
    assert found.cut_edges == sum(part[u] != part[v] for u, v in pairs)
    assert found.num_edges == len(pairs)
    assert found.vertices == tuple(part.count(s) for s in every)
    assert found.edges == tuple(sum(part[v] == s for _, v in pairs) for s in every)
    assert found.ghosts_in == tuple(sum(reader == s for reader, _ in into) for s in every)
    assert found.ghosts_out == tuple(sum(reader == s for reader, _ in out) for s in every)
    received = [sum(108 * (r == s) for r, _ in into) + sum(5 * (r == s) for r, _ in out) for s in every]
    sent = [sum(108 * (part[u] == s) for _, u in into) + sum(5 * (part[u] == s) for _, u in out) for s in every]
    assert (found.received_bytes, found.sent_bytes) == (tuple(received), tuple(sent))
    assert found.edge_balance == pytest.approx(max(found.edges) / (len(pairs) / servers))
    assert found.vertex_balance == pytest.approx(max(found.vertices) / (20 / servers))
    assert json.loads(json.dumps(found.to_dict()))["cut_share"] == found.cut_edges / len(pairs)


def test_interval_balance() -> None:
    graph = messy_graph(20, 60)
    layout = lay_out(graph, partition(graph, 2), 3)
    moved = graph.reorder(layout.order)
    worst = 0.0
    for bounds in layout.interval_bounds:
        edges = np.diff(moved.incoming.offsets[list(bounds)])
        worst = max(worst, edges.max() / edges.mean())
    assert interval_balance(graph, layout) == pytest.approx(worst)
