"""Saved partitions: strict when read, whole when written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph.partition import Partition, PartitionError, files, partition

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


def test_a_full_disk_is_an_error_that_names_the_folder(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        partition(GRAPH, 2).save(saved)
    assert (caught.value.errno, caught.value.filename) == (28, str(saved))
    assert Partition.load(saved).num_parts == 3


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


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path):
        with pytest.raises(PartitionError, match="is the current folder: choose a new folder for the partition"):
            files.check_free(folder)


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
        ({"version": True}, r"has version True"),
        ({"version": 1}, r"unknown keys: sha256"),
        ({"sha256": None}, r"sha256 must be str, got None"),
        ({"num_vertices": -1}, r"num_vertices must be ≥ 0, got -1"),
        ({"num_vertices": 10**15}, r"are not what was written: their SHA-256 is another"),
        ({"seed": 4}, r"are not what was written: their SHA-256 is another"),
        ({"method": "lbg"}, r"are not what was written: their SHA-256 is another"),
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
    (saved / "partition.json").write_text("[" * 10**5)
    with pytest.raises(PartitionError, match=r"partition.json is damaged \(maximum recursion"):
        Partition.load(saved)


def test_another_server_of_a_vertex_is_found(saved: Path) -> None:
    parts = bytearray((saved / "parts.npy").read_bytes())
    parts[-4] = (parts[-4] + 1) % 3
    (saved / "parts.npy").write_bytes(parts)
    with pytest.raises(PartitionError, match=r"parts.npy is damaged \(it and partition.json are not what was written"):
        Partition.load(saved)
    (saved / "parts.npy").unlink()
    with pytest.raises(PartitionError, match=r"parts.npy is damaged \(it is not there\)"):
        Partition.load(saved)


def _as_version_1(saved: Path, **change: object) -> None:
    """The record as it was before it had a digest."""
    record = json.loads((saved / "partition.json").read_text()) | {"version": 1} | change
    del record["sha256"]
    (saved / "partition.json").write_text(json.dumps(record))


def test_version_1_is_read_without_a_digest(saved: Path) -> None:
    expected = Partition.load(saved)
    _as_version_1(saved)
    found = Partition.load(saved)
    np.testing.assert_array_equal(found.parts, expected.parts)
    assert found.graph_digest == expected.graph_digest
    for change, told in (
        ({"num_parts": 2}, r"parts.npy is damaged \(servers must be in 0 … 1, got 0 … 2\)"),
        ({"num_vertices": 21}, r"expected int32 \[21\], got int32 \[20\]"),
    ):
        path = saved / "partition.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"num_parts": 3, "num_vertices": 20} | change))
        with pytest.raises(PartitionError, match=told):
            Partition.load(saved)


@pytest.mark.parametrize("shape", [(10**15,), (2**20, 2**20)])
def test_an_array_of_any_declared_size_takes_no_memory(saved: Path, shape: tuple[int, ...]) -> None:
    _as_version_1(saved)
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (saved / "parts.npy").write_bytes(b"\x93NUMPY\1\0\x76\0" + text.encode())
    with pytest.raises(PartitionError, match=r"parts.npy is damaged"):
        Partition.load(saved)
    (saved / "parts.npy").write_bytes(bytes(10_000))
    with pytest.raises(PartitionError, match=r"it has 10,000 bytes, and 20 vertices take at most"):
        Partition.load(saved)


def test_one_that_is_replaced_while_it_is_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the old or the new one, never the record of one and the servers of the other."""
    other = partition(messy_graph(), 2, method="random", seed=5)
    reading, others = np.load, iter([other])

    def late(*arguments: object, **options: object) -> object:
        for one in others:
            one.save(saved)
        return reading(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "load", late)
    found = Partition.load(saved)
    assert (found.method, found.seed) == ("random", 5)
    assert np.array_equal(found.parts, other.parts)


def test_a_header_that_is_anything_is_damage(saved: Path) -> None:
    """NumPy reads it as Python's source. Found by fuzzing."""
    _as_version_1(saved)
    (saved / "parts.npy").write_bytes(b"\x93NUMPY\x01\x00\x04\x00((((")
    with pytest.raises(PartitionError, match=r"parts.npy is damaged"):
        Partition.load(saved)


def test_one_that_is_not_there_for_a_moment(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer has moved the old one away and not yet put the new one there."""
    between = saved.parent / f".{saved.name}.dorylax-0123abcd"
    between.mkdir()
    saved.rename(between / "old")
    monkeypatch.setattr(files.time, "sleep", lambda _: (between / "old").rename(saved))
    assert Partition.load(saved).num_parts == 3
    saved.rename(between / "old")  # by one that was killed there
    monkeypatch.setattr(files, "_BETWEEN_SECONDS", 0.0)
    with pytest.raises(PartitionError, match="is not a saved partition"):
        Partition.load(saved)
