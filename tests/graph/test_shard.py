"""Shards put together again are the graph: pulls over both directions, and sums pushed to the sources."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.compressed import Adjacency
from dorylax.graph.cutting import Cutting
from dorylax.graph.partition import Layout, lay_out, partition
from dorylax.graph.shard import Shard

CASES = [(servers, intervals) for servers in range(1, 6) for intervals in (1, 2, 3, 6)]


def _case(servers: int, intervals: int, symmetric: bool) -> tuple[Graph, Layout, tuple[Shard, ...]]:
    """The laid-out graph, its layout and the shards."""
    graph = messy_graph(40, 160, seed=servers)
    graph = graph.symmetrise() if symmetric else graph
    layout = lay_out(graph, partition(graph, servers, method="random"), intervals)
    return graph.reorder(layout.order), layout, tuple(Cutting(graph, layout))


def _edges(graph: Graph) -> list[tuple[int, int]]:
    """(source, target) of each edge, by edge id."""
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    return list(zip(graph.incoming.neighbours.tolist(), targets.tolist(), strict=True))


def _rows(rows: Adjacency) -> list[list[int]]:
    assert rows.offsets.dtype == np.int64
    assert rows.neighbours.dtype == np.int32
    assert rows.offsets[0] == 0
    assert rows.offsets[-1] == len(rows.neighbours)
    return [row.tolist() for row in np.split(rows.neighbours, rows.offsets[1:-1])] if rows.num_rows else []


def _everywhere(shard: Shard, direction) -> list[int]:
    """The laid-out row of each local one."""
    return [*range(shard.first, shard.last), *shard.ghosts[direction].tolist()]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("servers", "intervals"), CASES)
def test_pulled_rows(servers: int, intervals: int, symmetric: bool) -> None:
    graph, _, found = _case(servers, intervals, symmetric)
    edges = _edges(graph)
    near = {
        "in": [sorted(u for u, v in edges if v == row) for row in range(40)],
        "out": [sorted(v for u, v in edges if u == row) for row in range(40)],
    }
    assert [shard.server for shard in found] == list(range(servers))
    for direction in ("in", "out"):
        together = []
        for shard in found:
            rows = shard.incoming if direction == "in" else shard.outgoing
            where = _everywhere(shard, direction)
            together += [sorted(where[k] for k in row) for row in _rows(rows)]
            reached = {u for row in range(shard.first, shard.last) for u in near[direction][row]}
            assert shard.ghosts[direction].tolist() == sorted(reached - set(range(shard.first, shard.last)))
        assert together == near[direction]
    # Entry k of the incoming rows is edge first_edge + k.
    in_edge_order = [
        where[k] for shard in found for where in [_everywhere(shard, "in")] for k in shard.incoming.neighbours
    ]
    assert in_edge_order == [u for u, _ in edges]
    assert all(shard.incoming is shard.outgoing for shard in found) == symmetric


@pytest.mark.parametrize(("servers", "intervals"), CASES)
def test_bounds_and_what_is_sent(servers: int, intervals: int) -> None:
    graph, layout, found = _case(servers, intervals, symmetric=False)
    edges = _edges(graph)
    for shard in found:
        absolute = layout.interval_bounds[shard.server]
        assert [shard.first + b for b in shard.bounds] == list(absolute)
        assert [shard.first_edge + b for b in shard.edge_bounds] == graph.incoming.offsets[list(absolute)].tolist()
        assert shard.last_edge - shard.first_edge == sum(shard.first <= v < shard.last for _, v in edges)
        assert (shard.num_rows, shard.num_intervals) == (shard.last - shard.first, intervals)
        for direction in ("in", "out"):
            ghosts, bounds = shard.ghosts[direction], shard.ghost_bounds[direction]
            assert len(bounds) == servers * intervals + 1
            for k, (start, stop) in enumerate(zip(layout.all_bounds[:-1], layout.all_bounds[1:], strict=True)):
                part = ghosts[bounds[k] : bounds[k + 1]].tolist()
                assert part == [g for g in ghosts.tolist() if start <= g < stop]
                owner = found[k // intervals]
                sent = dict(owner.sends[direction][k % intervals]).get(shard.server)
                assert (sent is not None) == bool(part)
                if sent is not None:
                    assert (sent + owner.first).tolist() == part
    for shard in found:
        peers = [[peer for peer, _ in sends] for sends in (*shard.sends["in"], *shard.sends["out"])]
        assert all(one == sorted(set(one)) and shard.server not in one for one in peers)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("servers", "intervals"), CASES)
def test_pushed_sums(servers: int, intervals: int, symmetric: bool) -> None:
    """A value on every edge, added up per source, by way of intervals and peers."""
    graph, _, found = _case(servers, intervals, symmetric)
    values = np.random.default_rng(0).integers(1, 1000, graph.num_edges)
    arrays = []
    for shard in found:
        merge = shard.merge()
        array = np.full(merge.size, -1)
        own = values[shard.first_edge : shard.last_edge]
        for i in range(intervals):
            of_interval = own[shard.edge_bounds[i] : shard.edge_bounds[i + 1]]
            rows = shard.transposed(i)
            bounds = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
            array[merge.starts[i] : merge.starts[i + 1]] = [of_interval[rows.edges[a:b]].sum() for a, b in bounds]
        arrays.append(array)
    summed = [_rows(shard.merge().rows) for shard in found]
    for shard, array in zip(found, arrays, strict=True):
        for peer, first, last in shard.merge().received:
            other = found[peer]
            mine = [g for g, vertex in enumerate(other.ghosts["in"]) if shard.first <= vertex < shard.last]
            entries = [summed[peer][other.num_rows + g] for g in mine]
            array[first:last] = [arrays[peer][places].sum() for places in entries]
        assert (array >= 0).all()
    total = [array[places].sum() for s, array in enumerate(arrays) for places in summed[s][: found[s].num_rows]]
    expected = np.bincount(graph.incoming.neighbours, values, graph.num_vertices)
    np.testing.assert_array_equal(total, expected)


def test_without_edges_and_of_another_graph() -> None:
    graph = Graph.from_coo([], [], 4)
    layout = lay_out(graph, partition(graph, 2), 2)
    for shard in Cutting(graph, layout):
        assert (shard.merge().size, shard.ghosts["in"].tolist(), shard.sends["in"]) == (0, [], ((), ()))
    with pytest.raises(ValueError, match="the layout has 4 rows, the graph 5"):
        Cutting(Graph.from_coo([], [], 5), layout)
