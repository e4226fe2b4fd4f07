from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.graph import Graph
from dorylax.graph.cutting import Cutting
from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.graph.partition import Layout
from dorylax.graph.partition.simple import even_bounds
from dorylax.graph.shard_summary import ShardSummary


@given(
    vertices=st.integers(20, 5000),
    degree=st.integers(1, 40),
    spread=st.sampled_from([0.0, 1.0, 2.5]),
    cut=st.sampled_from([None, 0.0, 0.3, 1.0]),
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


@pytest.mark.parametrize("degree", [4, 30])
def test_numbers_are_those_of_a_graph_of_these_degrees(degree):
    """Of a random graph with equal expected degrees, with random servers and intervals (`lay_out` finds communities)."""
    vertices, servers, intervals = 6000, 3, 2
    rng = np.random.default_rng(0)
    half = vertices * degree // 2
    graph = Graph.from_coo(*rng.integers(0, vertices, (2, half)), vertices).symmetrise()
    bounds = even_bounds(vertices, servers * intervals).tolist()
    cuts = tuple(tuple(bounds[first : first + intervals + 1]) for first in range(0, servers * intervals, intervals))
    layout = Layout(rng.permutation(vertices), tuple(bounds[::intervals]), cuts)
    real = [ShardSummary.of(shard) for shard in Cutting(graph, layout)]
    made = DegreeStatistics(vertices, graph.num_edges, spread=0.0).shards(servers, intervals)
    for one, other in zip(real, made, strict=True):
        assert len(other.ghosts["in"]) == pytest.approx(len(one.ghosts["in"]), rel=0.02)
        for interval in range(intervals):
            ghosts = other.block_counts("in", interval)[intervals:]
            assert ghosts.sum() == pytest.approx(one.block_counts("in", interval)[intervals:].sum(), rel=0.05)


def test_more_spread_means_fewer_ghosts():
    """Hubs are wanted by everybody: fewer different vertices are."""
    ghosts = [len(DegreeStatistics(10_000, 100_000, spread).shards(4, 2)[0].ghosts["in"]) for spread in (0.0, 1.0, 2.0)]
    assert ghosts == sorted(ghosts, reverse=True)
    assert ghosts[-1] < ghosts[0] / 2


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
