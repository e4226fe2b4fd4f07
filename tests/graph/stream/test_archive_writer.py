"""Archives that are written piece by piece: the same arrays as NumPy's, side by side, large ones, and what is refused."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from dorylax.graph import npz
from dorylax.graph.stream import archive_writer
from dorylax.graph.stream.archive_writer import ArchiveWriter, new_archive

ARRAYS = {
    "indptr": np.arange(5),
    "rows": np.arange(300, dtype=np.float32).reshape(100, 3),
    "flags": np.array([True, False]),
    "name": np.array("größer"),
    "nothing": np.zeros((0, 4), np.int32),
    "one": np.array(7),
    "swapped": np.arange(3, dtype=">f8"),
    "edge_längé": np.ones(3, np.int8),
}


def test_arrays_come_back_from_any_reader(tmp_path):
    path = tmp_path / "a.npz"
    with new_archive(path) as archive:
        for name, array in ARRAYS.items():
            archive.add(name, array)
    with np.load(path) as found, zipfile.ZipFile(path) as members:
        assert members.testzip() is None
        assert found.files == [*ARRAYS, "checksums.json"]
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    with npz.open_npz(path) as opened:
        assert opened.names == tuple(ARRAYS)
        np.testing.assert_array_equal(opened.fetch("rows"), ARRAYS["rows"])


def test_arrays_grow_side_by_side(tmp_path):
    whole, pieces = tmp_path / "whole.npz", tmp_path / "pieces.npz"
    a, b = np.arange(1000), np.arange(2000, dtype=np.float32).reshape(1000, 2)
    with new_archive(whole) as archive:
        archive.add("a", a)
        archive.add("b", b)
    with new_archive(pieces) as archive:
        of_a, of_b = archive.open("a", a.dtype, a.shape), archive.open("b", b.dtype, b.shape)
        for start in range(0, 1000, 170):
            of_b.write(b[start : start + 170])
            of_a.write(a[start : start + 170])
    assert whole.read_bytes() == pieces.read_bytes()


def test_the_rows_of_a_view_are_written_in_order(tmp_path):
    array = np.arange(20).reshape(4, 5)
    with new_archive(tmp_path / "a.npz") as archive:
        archive.add("x", array.T)
        archive.add("y", array[:, ::2])
    with np.load(tmp_path / "a.npz") as found:
        np.testing.assert_array_equal(found["x"], array.T)
        np.testing.assert_array_equal(found["y"], array[:, ::2])


def test_members_begin_on_multiples_of_64_bytes(tmp_path):
    path = tmp_path / "a.npz"
    with new_archive(path) as archive:
        for name, array in ARRAYS.items():
            archive.add(name, array)
    with zipfile.ZipFile(path) as members, path.open("rb") as stream:
        starts = [npz.start_of(stream, info) for info in members.infolist() if info.filename.endswith(".npy")]
    assert [start % 64 for start in starts] == [0] * len(ARRAYS)


def test_sizes_beyond_32_bits_are_said_in_fields_of_zip64(tmp_path, monkeypatch):
    """As of an array of more than 4 GiB, one that begins behind it, and a directory there."""
    monkeypatch.setattr(archive_writer, "_LIMIT", 4000)
    real = archive_writer._entry
    path = tmp_path / "a.npz"
    array = np.arange(1000)
    with new_archive(path) as archive:
        archive.add("x", array)
        archive.add("y", array + 1)
    # What zip takes for "see the field" is 2³² - 1: put that where the lowered limit was written.
    content = path.read_bytes().replace((4000).to_bytes(4, "little"), (2**32 - 1).to_bytes(4, "little"))
    with np.load(io.BytesIO(content)) as found:
        np.testing.assert_array_equal(found["y"], array + 1)
    assert real is archive_writer._entry


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(3), r"x is int32 \[4, 2\], got rows of float64 \[3\]"),
        (np.zeros((3, 3), np.int32), r"x is int32 \[4, 2\], got rows of int32 \[3, 3\]"),
        (np.zeros((5, 2), np.int32), r"x has \[4, 2\] elements, got more"),
        (np.zeros((3, 2), np.int32), r"x \[4, 2\] lacks its last 8 bytes"),
    ],
)
def test_rows_that_do_not_fit(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message), new_archive(tmp_path / "a.npz") as archive:
        archive.open("x", np.dtype(np.int32), (4, 2)).write(rows)
    assert list(tmp_path.iterdir()) == []


def test_names_are_taken_once(tmp_path):
    with new_archive(tmp_path / "a.npz") as archive:
        archive.add("x", np.arange(3))
        with pytest.raises(ValueError, match="there is an array x already"):
            archive.add("x", np.arange(3))


def test_an_archive_of_nothing(tmp_path):
    with (tmp_path / "a.npz").open("xb") as file:
        ArchiveWriter(file).close()
    with zipfile.ZipFile(tmp_path / "a.npz") as members:
        assert members.namelist() == ["checksums.json"]
