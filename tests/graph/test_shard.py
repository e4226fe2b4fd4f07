"""Shards put together again are the graph; in files, in S3, and cut one at a time they are the same."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.aws import cloud
from support.graphs import messy_graph, pairs
from support.pipelines import messy_data
from support.stored import contents

from dorylax.errors import RunError
from dorylax.graph import Graph
from dorylax.graph.compressed import Adjacency
from dorylax.graph.cutting import Cutting
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.partition import Layout, lay_out, partition
from dorylax.graph.rows import SPAN
from dorylax.graph.shard import Shard
from dorylax.graph.sharded_data import ShardedData, read_shard, write_shard
from dorylax.graph.validate import GraphError
from dorylax.pipeline.shard_writing import write_shards
from dorylax.store.base import StorageError
from dorylax.store.places import open_storage

CASES = [(servers, intervals) for servers in range(1, 6) for intervals in (1, 2, 3, 6)]


def _case(servers: int, intervals: int, symmetric: bool) -> tuple[Graph, Layout, tuple[Shard, ...]]:
    """The laid-out graph, its layout and the shards."""
    graph = messy_graph(40, 160, seed=servers)
    graph = graph.symmetrise() if symmetric else graph
    layout = lay_out(graph, partition(graph, servers, method="random"), intervals)
    return graph.reorder(layout.order), layout, tuple(Cutting(graph, layout))


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
    edges = pairs(graph)
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
    edges = pairs(graph)
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


def pieces(graph: Graph, servers: int = 3, intervals: int = 2) -> tuple[Shard, ...]:
    layout = lay_out(graph, partition(graph, servers, method="random"), intervals)
    return tuple(Cutting(graph, layout))


def same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_shard_comes_back(tmp_path: Path, symmetric: bool) -> None:
    graph = messy_graph(60, 240)
    for piece in pieces(graph.symmetrise() if symmetric else graph):
        rows = {"rows x": np.arange(piece.num_rows, dtype=np.float32), "labels y": np.zeros((0, 3))}
        write_shard(tmp_path / "s", piece, rows, identity="a")
        found, beside = read_shard(tmp_path / "s", identity="a")
        same(beside, rows)
        for name in ("server", "rows", "edges", "bounds", "edge_bounds", "ghosts", "ghost_bounds", "sends", "pushes"):
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


@pytest.fixture
def place() -> Iterator[str]:
    with cloud() as aws:
        aws.make_bucket()
        yield f"s3://{aws.bucket}/some/prefix"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


def test_shards_that_change_are_named(tmp_path: Path) -> None:
    data = messy_data(60, 240)
    write_shards(tmp_path, data, lay_out(data.graph, partition(data.graph, 2, method="random"), 2), ids=False)
    found = ShardedData.find(tmp_path)
    assert found is not None
    found.check_unchanged()
    with (tmp_path / "server-1/in_offsets.npy").open("ab") as file:
        file.write(b"more")
    with pytest.raises(
        RunError, match=r"server-1/in_offsets\.npy has changed since it was loaded \([0-9,]+ bytes then"
    ):
        found.check_unchanged()


def test_a_host_fetches_its_own_file_alone(place: str, tmp_path: Path, cached: Path) -> None:
    data, folder = messy_data(60, 240), tmp_path / "here"
    folder.mkdir()
    layout = lay_out(data.graph, partition(data.graph, 2, method="random"), 2)
    here = write_shards(folder, data, layout, ids=False)
    assert ShardedData.find(place) is None
    storage = open_storage(place)
    for path in folder.rglob("*.*"):
        storage.put(path.relative_to(folder).as_posix(), path)
    found = ShardedData.find(place)
    assert found is not None
    assert found.summary == here.summary
    shard, rows = found.shard(1)
    (copy,) = cached.iterdir()
    assert sorted(path.name for path in copy.iterdir()) == [name for name, *_ in here.summary.shards[1].files]
    times = {path: path.stat().st_mtime_ns for path in copy.iterdir()}
    found.shard(1)
    assert times == {path: path.stat().st_mtime_ns for path in copy.iterdir()}, "it is fetched once"
    next(copy.glob("*.npy")).write_bytes(b"damaged")
    found.shard(1)
    assert (shard.first, shard.last) == (30, 60)
    assert len(rows["rows features"]) == 30
    storage.put("server-0/in_offsets.npy", folder / "server-1/in_offsets.npy")
    with pytest.raises(StorageError, match=r"server-0/in_offsets\.npy"):
        found.shard(0)


# Of all arrays in the files that were written when the graph was laid out as a whole first.
DIGESTS = {
    "directed": {"random": "e03bd5246d3c66c3", "range": "47a6dca3948e0d6e"},
    "directed by source": {"random": "c82d4f6dd0c98232", "range": "e4ebb40b1f5b7382"},
    "directed by target": {"random": "e7ffd8431586e6bb", "range": "a97d0ad3897d3d8d"},
    "directed reordered": {"random": "b420ff5538eab317", "range": "22f7655189354ede"},
    "directed reordered by source": {"random": "a45638af2a01a44b", "range": "68f8df5aef79c5a4"},
    "directed reordered by target": {"random": "8e905337ea3a2f63", "range": "e194295571ed1d7d"},
    "symmetric": {"random": "ab1cae5a59bdb130", "range": "4c8224f11bd36082"},
    "symmetric by source": {"random": "654b14dd29eb241f", "range": "26ae94f9372d6933"},
    "symmetric by target": {"random": "b696b4de884812ec", "range": "3f4013ac842ca823"},
    "symmetric reordered": {"random": "bf7a309830111725", "range": "0ae5cf0e442bd8f5"},
    "symmetric reordered by source": {"random": "52d9a12a83767e14", "range": "75ff150025bf9c9f"},
    "symmetric reordered by target": {"random": "dc259a441330dc7d", "range": "157d0f12f67b1a64"},
}


def data_of(kind: str) -> Dataset:
    rng = np.random.default_rng(3)
    graph = messy_graph(60, 400, seed=1)
    if "symmetric" in kind:
        graph = graph.symmetrise()
    if "by" in kind:  # what comes of `from_coo` has another order of edges
        graph = Graph(*graph.host_rows(), symmetric=graph.symmetric, placed="source" if "source" in kind else "target")
    edges = {"length": rng.random(graph.num_edges).astype(np.float32)}
    masks = rng.integers(0, 3, 60) == np.arange(3)[:, None]
    features, labels = rng.random((60, 5)).astype(np.float32), rng.integers(0, 3, 60).astype(np.int32)
    ages = {"age": rng.integers(0, 9, 60).astype(np.int32)}
    data = Dataset("cut", graph, features, labels, 3, *masks, vertex_inputs=ages, edge_inputs=edges)
    return data.reorder(np.random.default_rng(2).permutation(60)) if "reordered" in kind else data


@pytest.mark.parametrize("method", ["random", "range"])
@pytest.mark.parametrize("kind", DIGESTS)
def test_files_hold_the_same_bytes_as_ever(tmp_path: Path, kind: str, method: str) -> None:
    data = data_of(kind)
    layout = lay_out(data.graph, partition(data.graph, 3, method=method), 4)
    digest = hashlib.sha256()
    for ids in (False, True):
        folder = tmp_path / str(ids)
        folder.mkdir()
        for entry in write_shards(folder, data, layout, ids=ids).summary.shards:
            arrays = contents(folder / entry.file)
            # The identity says, among other things, whether features happened to be aligned.
            for name in sorted(set(arrays) - {"identity"}):
                digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
                digest.update(arrays[name].tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[kind][method]


def test_no_more_is_held_than_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 million edges no copy, but an eighth of them at a time."""
    monkeypatch.setattr("dorylax.graph.reorder.SPAN", 1 << 16)  # as many at a time on each thread
    data = load("communities", num_vertices=4000, num_edges=16_000_000, num_features=500, num_classes=4)
    layout = lay_out(data.graph, partition(data.graph, 8, method="range"), 4)
    whole = 4 * data.graph.num_edges + data.features.nbytes
    tracemalloc.start()
    try:
        write_shards(tmp_path, data, layout, ids=False, digests=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole / 8 < peak < whole / 8 + 28 * SPAN
