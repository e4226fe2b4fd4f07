"""The undirected view: each pair once, no loops."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.partition.undirected import undirected

DIRECTED = messy_graph(20, 80)
_ROWS = np.repeat(np.arange(20), np.diff(DIRECTED.incoming.offsets))
_BOTH = np.concatenate([DIRECTED.incoming.neighbours, _ROWS]), np.concatenate([_ROWS, DIRECTED.incoming.neighbours])


@pytest.mark.parametrize("graph", [DIRECTED, Graph.from_coo(*_BOTH, 20)], ids=["directed", "symmetric, multiple edges"])
def test_against_sets(graph: Graph) -> None:
    near: list[set[int]] = [set() for _ in range(20)]
    for u, v in zip(*(ends.tolist() for ends in _BOTH), strict=True):
        if u != v:
            near[u].add(v)
    offsets, neighbours = undirected(graph)
    assert [row.tolist() for row in np.split(neighbours, offsets[1:-1])] == [sorted(row) for row in near]
