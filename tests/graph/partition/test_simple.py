"""Ranges and random parts."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.partition.simple import random, ranges


def test_ranges_by_vertices() -> None:
    parts = ranges(messy_graph(11), 3, "vertices")
    assert (np.diff(parts) >= 0).all()
    assert sorted(np.bincount(parts).tolist()) == [3, 4, 4]


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


def test_random_parts_are_even_and_in_no_order() -> None:
    parts = random(messy_graph(50), 4, "vertices", 0)
    assert sorted(np.bincount(parts).tolist()) == [12, 12, 13, 13]
    assert np.count_nonzero(np.diff(parts)) > 20
