"""A partition knows its graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.partition import Partition, PartitionError, graph_digest, partition

GRAPH = messy_graph()


def test_another_graph_is_refused(tmp_path: Path) -> None:
    made = partition(GRAPH, 3)
    with pytest.raises(PartitionError, match=r"the partition is of a graph of 20 vertices, this one has 21"):
        made.check(messy_graph(21))
    made.save(tmp_path / "parts")
    read = Partition.load(tmp_path / "parts")
    read.check(GRAPH)
    for other in (messy_graph(seed=1), GRAPH.reorder([1, 0, *range(2, 20)])):
        with pytest.raises(PartitionError, match=rf"the partition in {tmp_path}/parts is of another graph"):
            read.check(other)


def test_the_digest_sees_every_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dorylax.graph.rows.spans.__defaults__", (7,))  # several spans
    ring = list(range(10))
    digests = {graph_digest(Graph.from_coo([*ring[:k], 10, *ring[k + 1 :]], [*ring[1:], 0], 11)) for k in ring}
    assert len(digests) == 10
