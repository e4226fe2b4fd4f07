"""Ranges and random parts."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import Graph
from dorylax.graph.partition.simple import ranges


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
