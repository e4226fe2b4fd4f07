"""Whole rows in blocks, and what is wrong with rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import edge_rows
from dorylax.graph.array_folder import FolderWriter, write_arrays
from dorylax.graph.edge_rows import EdgeRows, Source
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError


@pytest.mark.parametrize("entries", [1, 7, 64, 10_000])
@pytest.mark.parametrize("most", [1, 5, 1000])
def test_blocks_are_the_rows(monkeypatch: pytest.MonkeyPatch, entries: int, most: int) -> None:
    monkeypatch.setattr(edge_rows, "_ROWS", most)
    offsets, sources = messy_graph(40, 300).host_rows()
    rows = EdgeRows(Source.held(offsets), Source.held(sources))
    found = list(rows.blocks(entries))
    assert (found[0].first, found[-1].last) == (0, 40)
    longest = int(np.diff(offsets).max())
    for block in found:
        assert block.start == offsets[block.first]
        assert len(block.entries) <= entries + longest
        assert block.last - block.first <= most
        np.testing.assert_array_equal(block.offsets, offsets[block.first : block.last + 1] - offsets[block.first])
    np.testing.assert_array_equal(np.concatenate([block.entries for block in found]), sources)
    doubled = Source.held(np.stack([sources, 2 * sources], axis=1))
    for block, other in zip(found, rows.blocks(entries, doubled), strict=True):
        assert other[:3] == block[:3]
        np.testing.assert_array_equal(other.entries[:, 1], 2 * block.entries)
    np.testing.assert_array_equal(rows.degrees(), np.diff(offsets))
    assert rows.degrees().dtype == np.int32


@pytest.mark.parametrize(
    ("offsets", "neighbours", "told"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "indptr must begin with 0 and never fall"),
        ([1, 2, 3], [0, 1, 1], "indptr must begin with 0"),
        ([0, 2], [0, 0, 0], "indptr ends with 2, expected 3, the length of indices"),
        ([0, 2, 3], [0, 2, 0], r"indices holds 2: must be ≥ 0 and < 2"),
        ([0, 2, 3], [0, -1, 0], r"indices holds -1: must be ≥ 0 and < 2"),
        ([], [], "indptr is empty"),
        ([0.0, 1.0], [0], "indptr must be integers"),
    ],
)
def test_wrong_rows(offsets: list[int], neighbours: list[int], told: str) -> None:
    arrays = (
        np.array(offsets, np.int64 if told != "indptr must be integers" else float),
        np.array(neighbours, np.int32),
    )
    with pytest.raises(GraphError, match=told):
        list(EdgeRows(*map(Source.held, arrays)).blocks())


def test_no_vertices() -> None:
    rows = EdgeRows(Source.held(np.zeros(1, np.int64)), Source.held(np.zeros(0, np.int32)))
    assert list(rows.blocks()) == []
    assert len(rows.degrees()) == 0


# Sources


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)

    def fill(writer: FolderWriter) -> None:
        writer.add("x", rng.random((1000, 7), np.float32))
        writer.add("y", np.arange(1000))
        writer.add("one", np.array(3))

    write_arrays(tmp_path / "a", fill)
    return tmp_path / "a"


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("rows", [None, 1000, 333, 1])
def test_blocks_are_the_array(path: Path, name: str, rows: int | None) -> None:
    with open_arrays(path) as archive:
        source, whole = Source.stored(archive, name), archive.fetch(name)
        assert (source.shape, source.dtype) == (whole.shape, whole.dtype)
        found = list(source.blocks(rows))
        np.testing.assert_array_equal(np.concatenate([block for _, block in found]), whole)
        assert [start for start, _ in found] == list(range(0, 1000, rows or 1000))
        np.testing.assert_array_equal(source.read(17, 18), whole[17:18])


def test_what_numpy_writes_is_read_too(tmp_path: Path) -> None:
    array = np.arange(30).reshape(10, 3)
    np.savez(tmp_path / "stored.npz", a=array)
    np.savez_compressed(tmp_path / "packed.npz", a=array)
    np.savez(tmp_path / "columns.npz", a=np.asfortranarray(array))
    for name in ("stored", "packed", "columns"):
        with open_arrays(tmp_path / f"{name}.npz") as archive:
            source = Source.stored(archive, "a")
            np.testing.assert_array_equal(source.read(2, 9), array[2:9])


def test_large_arrays_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_rows, "_HELD_BYTES", 100)
    np.savez_compressed(tmp_path / "packed.npz", a=np.arange(30))
    with (
        pytest.raises(
            GraphError, match=r"packed.npz: array a is compressed or in Fortran's order, which cannot be read"
        ),
        open_arrays(tmp_path / "packed.npz") as archive,
    ):
        Source.stored(archive, "a")


def test_damage_is_found_before_anything_is_read(path: Path) -> None:
    with open_arrays(path) as archive:
        place = archive.place("x")
    assert place is not None
    with (path / "x.npy").open("r+b") as file:
        file.seek(place.offset + 99)
        file.write(b"\xff\xff")
    with pytest.raises(GraphError, match=r"array x is damaged"), open_arrays(path) as archive:
        Source.stored(archive, "x")
    with open_arrays(path, verify=False) as archive:
        Source.stored(archive, "x")


def test_a_single_value_has_no_rows(path: Path) -> None:
    with pytest.raises(GraphError, match="one must have a row for each vertex or edge"), open_arrays(path) as archive:
        Source.stored(archive, "one")


def test_a_file_that_becomes_shorter_is_an_error(path: Path) -> None:
    """A mapped one would end the process."""
    with open_arrays(path) as stored:
        source = Source.stored(stored, "x")
        (path / "x.npy").write_bytes((path / "x.npy").read_bytes()[:9000])
        source.read(0, 300)
        with pytest.raises(GraphError, match="the file ends at byte 9,000, where rows 300 … 399 are expected"):
            source.read(300, 400)
