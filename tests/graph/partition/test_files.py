"""Saved partitions: strict when read, whole when written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph.partition import Partition, PartitionError, partition

GRAPH = messy_graph()


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
    assert sorted(path.name for path in saved.iterdir()) == ["partition.json", "parts.npy"]
    assert [path.name for path in saved.parent.iterdir()] == ["parts"]


def test_a_saved_partition_and_an_empty_folder_are_replaced(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (saved, tmp_path / "empty"):
        partition(GRAPH, 2).save(folder)
        assert Partition.load(folder).num_parts == 2


def test_anything_else_is_not_overwritten(saved: Path, tmp_path: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "parts.npy").write_text("mine")
    for folder, told in [
        (saved, r"parts holds something other than a partition \(notes.txt\)"),
        (tmp_path / "run", r"run holds something other than a partition \(parts.npy\)"),
        (tmp_path / "file", r"file is a file: choose a new folder"),
    ]:
        with pytest.raises(PartitionError, match=told):
            partition(GRAPH, 2).save(folder)
    assert Partition.load(saved).num_parts == 3


def test_a_write_that_fails_changes_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        partition(GRAPH, 2).save(saved)
    assert Partition.load(saved).num_parts == 3
    assert [path.name for path in saved.parent.iterdir()] == ["parts"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 3}, r"has version 3, this dorylax reads version 2"),
        ({"format": "x"}, r"is not of a dorylax partition"),
        ({"colour": "red", "age": 1}, r"unknown keys: age, colour"),
        ({"num_parts": None}, r"num_parts must be int, got None"),
        ({"num_parts": True}, r"num_parts must be int, got True"),
        ({"seed": 1.0}, r"seed must be int, got 1.0"),
        ({"num_parts": 0}, r"num_parts must be ≥ 1, got 0"),
        ({"num_parts": 2}, r"parts.npy is damaged \(servers must be in 0 … 1, got 0 … 2\)"),
        ({"num_vertices": 21}, r"expected int32 \[21\], got int32 \[20\]"),
    ],
)
def test_a_record_that_is_not_as_written(saved: Path, change: dict[str, object], told: str) -> None:
    path = saved / "partition.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PartitionError, match=told):
        Partition.load(saved)


def test_files_that_are_not_as_written(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"is not a saved partition: it has no partition.json"):
        Partition.load(tmp_path)
    parts = (saved / "parts.npy").read_bytes()
    for content in (parts[:-5], parts[:4], b""):
        (saved / "parts.npy").write_bytes(content)
        with pytest.raises(PartitionError, match=r"parts.npy is damaged"):
            Partition.load(saved)
    (saved / "partition.json").write_text("{")
    with pytest.raises(PartitionError, match=r"partition.json is damaged"):
        Partition.load(saved)
