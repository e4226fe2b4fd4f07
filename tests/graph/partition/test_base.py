"""Saved partitions: they know their graph, are strict when read and whole when written; earlier versions are read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.array_folder import write_arrays
from dorylax.graph.partition import Partition, PartitionError, base, graph_digest, partition

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


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "parts"
    partition(GRAPH, 3, method="ldg", balance="edges", seed=5).save(folder)
    return folder


def test_round_trip(saved: Path) -> None:
    made, read = partition(GRAPH, 3, method="ldg", balance="edges", seed=5), Partition.load(saved)
    np.testing.assert_array_equal(read.parts, made.parts)
    assert read.parts.dtype == np.int32
    assert (read.num_parts, read.method, read.balance, read.seed) == (3, "ldg", "edges", 5)
    assert read.folder == saved
    assert sorted(path.name for path in saved.iterdir()) == ["manifest.json", "parts.npy"]
    assert [path.name for path in saved.parent.iterdir()] == ["parts"]


def test_a_saved_partition_and_an_empty_folder_are_replaced(saved: Path, old: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (saved, tmp_path / "empty", old):
        partition(GRAPH, 2).save(folder)
        assert Partition.load(folder).num_parts == 2


def test_anything_else_is_not_overwritten(saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(PartitionError, match=r"parts is a folder that holds notes\.txt, which dorylax did not write"):
        partition(GRAPH, 2).save(saved)
    assert Partition.load(saved).num_parts == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_parts": None}, "has no array num_parts"),
        ({"num_parts": True}, "num_parts must be int, got True"),
        ({"seed": 1.0}, "seed must be int, got 1.0"),
        ({"num_parts": 0}, "num_parts must be ≥ 1, got 0"),
        ({"num_parts": 2}, r"servers must be in 0 … 1, got 0 … 2"),
        ({"parts": np.zeros((2, 2), np.int32)}, r"parts must be int32 \[V\], got int32 \[2, 2\]"),
        ({"parts": np.zeros(3)}, r"parts must be int32 \[V\], got float64 \[3\]"),
    ],
)
def test_values_that_make_no_partition(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    fields = {"num_parts": 3, "method": "ldg", "balance": "edges", "seed": 5, "graph_digest": "0"}
    arrays = {"parts": np.array([0, 2, 1], np.int32), **fields, **changes}

    def fill(writer):
        for name, value in arrays.items():
            if value is not None:
                writer.add(name, np.array(value))

    write_arrays(tmp_path / "parts", fill)
    with pytest.raises(PartitionError, match=told):
        Partition.load(tmp_path / "parts")


def test_damage_and_folders_of_something_else(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"is not a saved partition: it has no manifest\.json"):
        Partition.load(tmp_path)
    parts = bytearray((saved / "parts.npy").read_bytes())
    parts[-4] = (parts[-4] + 1) % 3
    (saved / "parts.npy").write_bytes(parts)
    with pytest.raises(PartitionError, match=r"array parts is damaged.*make the partition again"):
        Partition.load(saved)
    (saved / "manifest.json").write_text("{")
    with pytest.raises(PartitionError, match=r"manifest\.json is damaged"):
        Partition.load(saved)


# Earlier versions


def _write_old(folder: Path, version: int = 2, **changes: object) -> None:
    (folder / "parts.npy").unlink(missing_ok=True)
    made = partition(GRAPH, 3, method="ldg", balance="edges", seed=5)
    np.save(folder / "parts.npy", made.parts)
    record = {"format": "dorylax-partition", "version": version, "num_vertices": len(made.parts)}
    record |= {name: getattr(made, name) for name in ("num_parts", "method", "balance", "seed", "graph_digest")}
    if version == 2:
        content = json.dumps(record, sort_keys=True).encode() + (folder / "parts.npy").read_bytes()
        record["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "partition.json").write_text(json.dumps(record | changes))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    _write_old(tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.parametrize("version", [1, 2])
def test_old_partitions_are_read(saved: Path, old: Path, version: int) -> None:
    _write_old(old, version)
    expected, found = Partition.load(saved), Partition.load(old)
    np.testing.assert_array_equal(found.parts, expected.parts)
    assert found.graph_digest == expected.graph_digest


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 3}, "it has version 3, and this dorylax reads versions 1 and 2"),
        ({"seed": 4}, "are not what was written: their SHA-256 differs"),
        ({"version": 1, "format": "x"}, "it is not of this partition"),
        ({"version": 1, "num_vertices": 21}, "it is not of this partition"),
        ({"version": 1, "num_parts": 2}, r"servers must be in 0 … 1, got 0 … 2"),
    ],
)
def test_old_records_that_are_not_as_written(old: Path, changes: dict[str, object], told: str) -> None:
    _write_old(old, **changes)  # type: ignore[arg-type]
    with pytest.raises(PartitionError, match=rf"partition\.json is damaged \(.*{told}"):
        Partition.load(old)


# Readers beside writers


def test_one_that_is_replaced_while_it_is_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the old or the new one, never the values of one and the servers of the other."""
    other = partition(messy_graph(), 2, method="random", seed=5)
    reading, others = base.open_arrays, iter([other])

    def late(path: Path) -> object:
        stored = reading(path)
        for one in others:
            one.save(saved)
        return stored

    monkeypatch.setattr(base, "open_arrays", late)
    found = Partition.load(saved)
    assert (found.method, found.seed) == ("random", 5)
    assert np.array_equal(found.parts, other.parts)
