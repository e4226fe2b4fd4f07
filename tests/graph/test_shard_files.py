from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.cutting import Cutting
from dorylax.graph.partition import lay_out, partition
from dorylax.graph.shard import Shard
from dorylax.graph.sharded_data import read_shard, write_shard
from dorylax.graph.validate import GraphError


def pieces(graph: Graph, servers: int = 3, intervals: int = 2) -> tuple[Shard, ...]:
    layout = lay_out(graph, partition(graph, servers, method="random"), intervals)
    return tuple(Cutting(graph, layout))


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif one is None or other is None:
        assert one is other
    else:
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_shard_comes_back(tmp_path: Path, symmetric: bool) -> None:
    graph = messy_graph(60, 240)
    for piece in pieces(graph.symmetrise() if symmetric else graph):
        rows = {"rows x": np.arange(piece.num_rows, dtype=np.float32), "labels y": np.zeros((0, 3))}
        write_shard(tmp_path / "s", piece, rows, identity="a")
        found, beside = read_shard(tmp_path / "s", identity="a")
        same(beside, rows)
        for name in ("server", "first", "last", "first_edge", "last_edge", "bounds", "edge_bounds", "ghosts"):
            same(getattr(found, name), getattr(piece, name))
        for name in ("ghost_bounds", "sends", "pushes"):
            same(getattr(found, name), getattr(piece, name))
        for name in ("incoming", "outgoing"):
            one, other = getattr(found, name), getattr(piece, name)
            same((one.offsets, one.neighbours, one.edges), (other.offsets, other.neighbours, other.edges))
        assert (found.outgoing is found.incoming) == symmetric
        same(found.merge().rows.neighbours, piece.merge().rows.neighbours)


def test_what_is_no_shard_is_refused(tmp_path: Path) -> None:
    messy_graph(20, 50).save(tmp_path / "g")
    with pytest.raises(GraphError, match="no array bounds"):
        read_shard(tmp_path / "g", identity="a")
