from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.graphs import summary_of

from dorylax.graph import Graph
from dorylax.graph.cutting import Cutting
from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.graph.partition import Layout
from dorylax.graph.partition.simple import even_bounds
from dorylax.graph.shard import MergeSummary, Shard


@given(
    vertices=st.integers(20, 5000),
    degree=st.integers(1, 40),
    spread=st.sampled_from([0.0, 1.0, 2.5]),
    cut=st.sampled_from([0.0, 0.3, 1.0]),
    servers=st.integers(1, 4),
    intervals=st.integers(1, 5),
)
def test_shards_fit_together(*, vertices, degree, spread, cut, servers, intervals):
    found = DegreeStatistics(vertices, vertices * degree, spread, cut).shards(servers, intervals)
    assert (found[0].first, found[-1].last) == (0, vertices)
    assert (found[0].first_edge, found[-1].last_edge) == (0, vertices * degree)
    for one, following in pairwise(found):
        assert (one.last, one.last_edge) == (following.first, following.first_edge)
    for shard in found:
        assert shard.edge_bounds[-1] == shard.last_edge - shard.first_edge == shard.incoming.offsets[-1]
        bounds = shard.ghost_bounds["in"]
        for peer in found:
            mine = [dict(sends).get(shard.server, ()) for sends in peer.sends["in"]]
            held = np.diff(bounds)[peer.server * intervals : (peer.server + 1) * intervals]
            assert [len(rows) for rows in mine] == held.tolist()  # what a peer sends is what is held
            assert max(held) <= peer.num_rows
        assert not np.diff(bounds)[shard.server * intervals : (shard.server + 1) * intervals].any()
        sizes = np.concatenate([np.diff(shard.bounds), np.diff(bounds)[np.diff(bounds) > 0]])
        for interval in range(intervals):
            counts = shard.block_counts("in", interval)
            assert counts.shape == sizes.shape
            assert (counts <= sizes).all()
            assert counts.sum() == len(shard.unique_sources(interval))


@given(
    vertices=st.integers(20, 3000),
    degree=st.integers(1, 20),
    spread=st.sampled_from([0.0, 1.0]),
    cut=st.sampled_from([0.0, 0.3, 1.0]),
    servers=st.integers(1, 4),
    intervals=st.integers(1, 5),
)
@example(vertices=3000, degree=20, spread=1.0, cut=1.0, servers=3, intervals=4)
def test_merges_fit_together(*, vertices, degree, spread, cut, servers, intervals):
    """Sums that a server sends are those that their owner receives, each stands for as many there as here."""
    shards = DegreeStatistics(vertices, vertices * degree, spread, cut).shards(servers, intervals)
    for shard in shards:
        merge, ghosts = shard.merge(), np.diff(shard.ghost_bounds["in"])
        everything = np.arange(merge.contributors.num_rows)
        assert merge.stand_for(everything) == len(shard.ghosts["in"])
        assert (np.diff(merge.contributors.offsets) >= 1).all()
        for first, last in pairwise(merge.contributors.offsets):
            mine = merge.contributors.neighbours[first:last]
            assert (np.diff(mine) > 0).all()
            assert 0 <= mine[0] <= mine[-1] < intervals
        for number, count in enumerate(ghosts):
            sample = everything[merge.ghost_bounds[number] : merge.ghost_bounds[number + 1]]
            assert merge.stand_for(sample) == count
        received = {peer: last - first for peer, first, last in merge.received}
        own = len(merge.starts) - 1
        counts = np.stack([merge.counts(interval) for interval in range(intervals)])
        read = np.stack([shard.block_counts("in", interval)[:own] for interval in range(intervals)])
        np.testing.assert_array_equal(counts[:, :own], read.T)
        for peer in shards:
            theirs = peer.merge()
            first, last = (int(theirs.ghost_bounds[(shard.server + end) * intervals]) for end in (0, 1))
            assert received.get(peer.server, 0) == last - first
            each = [theirs.stand_for(np.array([ghost])) for ghost in range(first, last)]
            if each:
                (begin,) = (begin for sender, begin, _ in merge.received if sender == peer.server)
                place = own + begin - int(merge.starts[-1])
                found = counts[:, place : place + last - first]
                assert ((found > 0).sum(axis=0) == 1).all()  # one interval reads it
                assert found.sum(axis=0).tolist() == each == merge.blocks[place : place + last - first].tolist()
        assert merge.size == merge.starts[-1] + sum(received.values()) == merge.starts[-1] + counts.shape[1] - own
        assert [shard.transposed(i).num_rows for i in range(intervals)] == np.diff(merge.starts).tolist()


def _graph(vertices: int, degree: int, spread: float) -> Graph:
    """A random graph with lognormal degrees."""
    rng = np.random.default_rng(0)
    degrees = np.exp(spread * rng.standard_normal(vertices))
    ends = rng.choice(vertices, (2, vertices * degree // 2), p=degrees / degrees.sum())
    return Graph.from_coo(*ends, vertices).symmetrise()


def _cut(graph: Graph, servers: int, intervals: int) -> list[Shard]:
    """Its shards, with random servers and intervals (`lay_out` finds communities)."""
    bounds = even_bounds(graph.num_vertices, servers * intervals).tolist()
    cuts = tuple(tuple(bounds[first : first + intervals + 1]) for first in range(0, servers * intervals, intervals))
    order = np.random.default_rng(1).permutation(graph.num_vertices)
    return list(Cutting(graph, Layout(order, tuple(bounds[::intervals]), cuts)))


@pytest.mark.parametrize(("degree", "spread"), [(4, 0.0), (30, 0.0), (12, 1.0)])
def test_merges_are_as_large_as_those_of_a_graph_of_these_degrees(degree, spread):
    vertices, servers, intervals = 6000, 3, 4
    graph = _graph(vertices, degree, spread)
    made = DegreeStatistics(vertices, graph.num_edges, spread).shards(servers, intervals)
    for one, other in zip(_cut(graph, servers, intervals), made, strict=True):
        real, sample = one.merge(), other.merge()
        assert isinstance(sample, MergeSummary)
        assert sample.starts[-1] == pytest.approx(real.starts[-1], rel=0.03)
        # How many ghosts have so many contributors.
        found = np.bincount(np.diff(sample.contributors.offsets), sample.ghosts, intervals + 1)
        expected = np.bincount(np.diff(real.contributors.offsets), minlength=intervals + 1)
        assert abs(found - expected).sum() < 0.1 * expected.sum()
        entries = [sum(merge.counts(interval).sum() for interval in range(intervals)) for merge in (sample, real)]
        assert entries[0] == pytest.approx(entries[1], rel=0.05)


@pytest.mark.parametrize("degree", [4, 30])
def test_numbers_are_those_of_a_graph_of_these_degrees(degree):
    """Of a random graph with equal expected degrees."""
    vertices, servers, intervals = 6000, 3, 2
    graph = _graph(vertices, degree, spread=0.0)
    real = [summary_of(shard) for shard in _cut(graph, servers, intervals)]
    made = DegreeStatistics(vertices, graph.num_edges, spread=0.0).shards(servers, intervals)
    for one, other in zip(real, made, strict=True):
        assert len(other.ghosts["in"]) == pytest.approx(len(one.ghosts["in"]), rel=0.02)
        for interval in range(intervals):
            ghosts = other.block_counts("in", interval)[intervals:]
            assert ghosts.sum() == pytest.approx(one.block_counts("in", interval)[intervals:].sum(), rel=0.05)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_vertices": 0}, "num_vertices must be ≥ 1, got 0"),
        ({"num_edges": 0}, "num_edges must be ≥ 1, got 0"),
        ({"spread": -1.0}, "spread must be ≥ 0, got -1.0"),
        ({"cut_ratio": 1.5}, "cut_ratio must be in 0 … 1, got 1.5"),
    ],
)
def test_what_cannot_be_is_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        DegreeStatistics(**{"num_vertices": 10, "num_edges": 20, **options})


def test_more_intervals_than_vertices_are_refused():
    with pytest.raises(ValueError, match="3 servers × 4 intervals are more than the 10 vertices"):
        DegreeStatistics(10, 20).shards(3, 4)
