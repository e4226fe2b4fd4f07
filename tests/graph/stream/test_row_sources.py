"""Rows of an array that are read in parts are those that were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.array_folder import FolderWriter, open_arrays, write_arrays
from dorylax.graph.stream import row_sources
from dorylax.graph.stream.row_sources import HeldRows, StoredRows, ahead, blocks, rows_of
from dorylax.graph.validate import GraphError


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
        source, whole = rows_of(archive, name), archive.fetch(name)
        assert isinstance(source, StoredRows)
        assert (source.shape, source.dtype) == (whole.shape, whole.dtype)
        found = list(blocks(source, rows))
        np.testing.assert_array_equal(np.concatenate([block for _, block in found]), whole)
        assert [start for start, _ in found] == list(range(0, 1000, rows or 1000))
        np.testing.assert_array_equal(source.read(17, 18), whole[17:18])


def test_what_numpy_writes_is_read_too(tmp_path: Path) -> None:
    array = np.arange(30).reshape(10, 3)
    np.savez(tmp_path / "stored.npz", a=array)
    np.savez_compressed(tmp_path / "packed.npz", a=array)
    np.savez(tmp_path / "columns.npz", a=np.asfortranarray(array))
    for name, kind in (("stored", StoredRows), ("packed", HeldRows), ("columns", HeldRows)):
        with open_arrays(tmp_path / f"{name}.npz") as archive:
            source = rows_of(archive, "a")
            assert isinstance(source, kind)
            np.testing.assert_array_equal(source.read(2, 9), array[2:9])


def test_large_arrays_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sources, "_HELD_BYTES", 100)
    np.savez_compressed(tmp_path / "packed.npz", a=np.arange(30))
    with (
        pytest.raises(
            GraphError, match=r"packed.npz: array a is compressed or in Fortran's order, which cannot be read"
        ),
        open_arrays(tmp_path / "packed.npz") as archive,
    ):
        rows_of(archive, "a")


def test_damage_is_found_before_anything_is_read(path: Path) -> None:
    with open_arrays(path) as archive:
        place = archive.place("x")
    assert place is not None
    with (path / "x.npy").open("r+b") as file:
        file.seek(place.offset + 99)
        file.write(b"\xff\xff")
    with pytest.raises(GraphError, match=r"array x is damaged"), open_arrays(path) as archive:
        rows_of(archive, "x")
    with open_arrays(path, verify=False) as archive:
        rows_of(archive, "x")


def test_a_single_value_has_no_rows(path: Path) -> None:
    with pytest.raises(GraphError, match="one must have a row for each vertex or edge"), open_arrays(path) as archive:
        rows_of(archive, "one")


def test_what_is_ahead_keeps_its_order_and_raises() -> None:
    assert list(ahead(lambda part: 2 * part, [3, 1, 2])) == [6, 2, 4]
    assert list(ahead(str, [])) == []
    with pytest.raises(ZeroDivisionError):
        list(ahead(lambda part: 1 // part, [1, 0]))


def test_a_file_that_becomes_shorter_is_an_error(path: Path) -> None:
    """A mapped one would end the process."""
    with open_arrays(path) as stored:
        source = rows_of(stored, "x")
        (path / "x.npy").write_bytes((path / "x.npy").read_bytes()[:9000])
        source.read(0, 300)
        with pytest.raises(GraphError, match="the file ends at byte 9,000, where rows 300 … 399 are expected"):
            source.read(300, 400)
