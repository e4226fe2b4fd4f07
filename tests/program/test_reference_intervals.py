from __future__ import annotations

import numpy as np
import pytest
from support.graphs import messy_graph
from support.reference import Intervals

from dorylax.graph.graph import Graph

GRAPH = messy_graph(20, 50)


def test_edges_follow_their_targets() -> None:
    intervals = Intervals.of(GRAPH, [0, 3, 3, 12, 20])
    offsets = np.asarray(GRAPH.incoming.offsets)
    assert len(intervals) == 4
    assert intervals.bounds["vertex"] == (0, 3, 3, 12, 20)
    assert intervals.bounds["edge"] == tuple(offsets[[0, 3, 3, 12, 20]])
    assert intervals.bounds["edge"][-1] == 50
    assert intervals.largest("vertex") == 9
    assert intervals.largest("edge") == max(np.diff(offsets[[0, 3, 12, 20]]))


@pytest.mark.parametrize("bounds", [[], [0], [0, 19], [1, 20], [0, 12, 3, 20], [0, 21], [0, -1, 20]], ids=str)
def test_bounds_ascend_from_0_to_the_number_of_vertices(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match=r"bounds of intervals must ascend from 0 to 20, got \["):
        Intervals.of(GRAPH, bounds)


@pytest.mark.parametrize("count", [1, 3, 20, 30])
def test_even(count: int) -> None:
    sizes = np.diff(Intervals.even(GRAPH, count).bounds["vertex"])
    assert len(sizes) == count
    assert sizes.sum() == 20
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", [0, -1])
def test_even_needs_an_interval(count: int) -> None:
    with pytest.raises(ValueError, match="interval"):
        Intervals.even(GRAPH, count)


def test_without_edges() -> None:
    none = np.zeros(0, np.int64)
    intervals = Intervals.even(Graph.from_coo(none, none, num_vertices=4), 2)
    assert intervals.bounds == {"vertex": (0, 2, 4), "edge": (0, 0, 0)}
    assert intervals.largest("edge") == 0
