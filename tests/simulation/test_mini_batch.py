"""Sizes of sampled mini-batches, beside mini-batches that are sampled from a graph."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.simulation.sampled import Hop, hops

VERTICES, DEGREE, SPREAD, SERVERS, TARGETS = 40_000, 12, 0.7, 4, 64
FANOUTS = (10, 5)


def sampled(rng: np.random.Generator, indptr: np.ndarray, neighbours: np.ndarray, server: int) -> list[tuple[int, ...]]:
    """Of each hop how many edges were sampled, and how many different vertices there are on the server and elsewhere."""
    rows = VERTICES // SERVERS
    known = rng.choice(np.arange(server * rows, (server + 1) * rows), TARGETS, replace=False)
    new, found = known, []
    for fanout in FANOUTS:
        drawn = [
            rng.choice(all_of, min(fanout, len(all_of)), replace=False)
            for all_of in (neighbours[indptr[vertex] : indptr[vertex + 1]] for vertex in new)
        ]
        new = np.setdiff1d(np.concatenate(drawn), known)
        known = np.concatenate([known, new])
        own = int(np.count_nonzero(known // rows == server))
        found.append((sum(map(len, drawn)), own, len(known) - own))
    return found


def test_sizes_are_those_of_sampling():
    """A graph with lognormal degrees, whose vertices are dealt to servers and whose edges are joined at random."""
    rng = np.random.default_rng(0)
    drawn = np.exp(SPREAD * rng.standard_normal(VERTICES))
    degrees = np.rint(drawn * (DEGREE / drawn.mean())).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    half_edges = rng.permutation(degrees.sum() // 2 * 2)
    neighbours = np.zeros(degrees.sum(), np.int64)
    owners = np.repeat(np.arange(VERTICES), degrees)
    for one, other in (half_edges.reshape(2, -1), half_edges.reshape(2, -1)[::-1]):
        neighbours[one] = owners[other]
    runs = [sampled(rng, indptr, neighbours, server % SERVERS) for server in range(160)]
    predicted = hops(DegreeStatistics(VERTICES, int(degrees.sum()), SPREAD), SERVERS, TARGETS, FANOUTS)
    assert predicted[0] == Hop(0.0, TARGETS, 0.0)
    for hop, measured in zip(predicted[1:], np.mean(runs, axis=0), strict=True):
        np.testing.assert_allclose(hop, measured, rtol=0.02)


def test_vertices_that_have_fewer_neighbours_give_all():
    few = DegreeStatistics(1000, 3000, spread=0.0)
    _, hop = hops(few, 1, 10, (25,))
    assert hop.edges == pytest.approx(30)
    assert hop.others == 0
    assert few.sampled(2, along_edges=True) == pytest.approx(2)


def test_a_cut_keeps_vertices_where_they_are():
    def others(cut: float) -> list[float]:
        return [hop.others / hop.vertices for hop in hops(DegreeStatistics(10**6, 10**7, 1.0, cut), 4, 100, FANOUTS)]

    assert others(0.0) == [0, 0, 0]
    assert 0 < others(0.2)[1] < others(0.2)[2] < others(1.0)[2] < 0.75


def test_no_more_than_there_is():
    *_, last = hops(DegreeStatistics(100, 5000, 1.0), 2, 50, (25, 10))
    assert last.own <= 50
    assert last.others <= 50
    assert last.vertices > 95


def test_edges_lead_to_vertices_that_have_more():
    statistics = DegreeStatistics(1000, 10_000, 1.0)
    assert statistics.sampled(10**6, along_edges=False) == pytest.approx(10)
    # Of a lognormal of spread 1 the mean along edges is e times as large.
    assert statistics.sampled(10**6, along_edges=True) == pytest.approx(10 * np.e, rel=0.02)
    assert statistics.sampled(5, along_edges=False) < statistics.sampled(5, along_edges=True) < 5
