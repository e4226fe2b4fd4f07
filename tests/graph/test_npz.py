"""Archives: what cannot be read is said with the file's name; writing is all or nothing."""

from __future__ import annotations

import contextlib

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from dorylax.graph import npz
from dorylax.graph.validate import GraphError


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"), npz.open_npz(tmp_path / "nothing.npz"):
        pass


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 but damaged"])
def test_not_an_archive(tmp_path, content):
    path = tmp_path / "text.npz"
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"text\.npz: not an npz archive"), npz.open_npz(path):
        pass


def test_a_single_array(tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(GraphError, match=r"one\.npy: not an npz archive but one array"):
        npz.open_npz(tmp_path / "one.npy").__enter__()


def test_python_objects_are_not_unpickled(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, labels=np.array([{}], object))
    with pytest.raises(GraphError, match=r"objects\.npz: array labels cannot be read"), npz.open_npz(path) as archive:
        archive.fetch("labels")


def test_damaged_member(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, labels=np.arange(1000))
    data = bytearray(path.read_bytes())
    data[2000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(GraphError, match=r"bad\.npz: array labels cannot be read"), npz.open_npz(path) as archive:
        archive.fetch("labels")


def _features(path, drop=(), **changes) -> np.ndarray:
    rows = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))
    arrays = {
        "features_indptr": rows.indptr,
        "features_indices": rows.indices,
        "features_data": rows.data,
        "features_shape": np.array([2, 3]),
        **{name: np.asarray(value) for name, value in changes.items()},
    }
    np.savez(path, **{name: array for name, array in arrays.items() if name not in drop})
    with npz.open_npz(path) as archive:
        return npz.read_features(archive)


def test_compressed_features_become_dense(tmp_path):
    features = _features(tmp_path / "x.npz")
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, [[0, 2, 0], [1, 0, 3]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features_indices": [1, 0, 3]}, r"features_indices\[2\] = 3 is out of range.*features_shape\[1\] = 3"),
        ({"features_indptr": [0, 3, 1]}, r"features_indptr\[2\] = 1 is below features_indptr\[1\] = 3"),
        ({"features_indptr": [0, 3]}, r"features_indptr has length 2: expected 3"),
        ({"features_data": [1.0]}, r"features_data has length 1: expected 3"),
        ({"features_data": ["a", "b", "c"]}, r"features_data must be real numbers \[N\], got <U1 \[3\]"),
        ({"features_data": 1.0}, r"features_data must be real numbers \[N\], got float64 \[\]"),
        ({"features_indices": 1}, r"features_indices must be one-dimensional"),
        ({"features_indptr": 0}, r"features_indptr must be one-dimensional"),
        ({"features_shape": [2]}, r"features_shape must be \(V, F\), two numbers, got 1"),
        ({"features_shape": 2}, r"features_shape must be one-dimensional"),
        ({"features_shape": [2.0, 3.0]}, r"features_shape must hold integers, got float64"),
        ({"features_shape": [2, -3]}, r"features_shape\[1\] = -3 is negative"),
        ({"drop": ("features_data",)}, r"has no array features_data; it has features_indptr"),
    ],
)
def test_bad_compressed_features(tmp_path, changes, message):
    with pytest.raises(GraphError, match=message):
        _features(tmp_path / "x.npz", **changes)


def test_compressed_features_too_large_for_float32_become_infinite(tmp_path):
    assert np.isinf(_features(tmp_path / "x.npz", features_data=[1e300, 1, 1])[0, 1])


@pytest.mark.parametrize("position", range(0, 1200, 7))
def test_whatever_byte_is_damaged_no_other_error_is_raised(tmp_path, position):
    path = tmp_path / "bad.npz"
    np.savez(path, indptr=np.arange(4), labels=np.eye(3))
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x55
    path.write_bytes(data)
    with contextlib.suppress(GraphError), npz.open_npz(path) as archive:
        for name in ("indptr", "labels"):
            archive.fetch(name)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "data.npz"
    npz.write_npz(path, {"a": np.arange(3)})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        npz.write_npz(path, {"a": np.arange(4), "b": np.array([{}], object)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.npz"]
    with npz.open_npz(path) as archive:
        assert archive.fetch("a").tolist() == [0, 1, 2]


def test_large_arrays_are_mapped_where_xla_reads_them_in_place(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_LARGE", 256)
    path = tmp_path / "a.npz"
    arrays = {"small": np.arange(3), "x": np.arange(90, dtype=np.float32).reshape(30, 3), "y": np.arange(100) * 2}
    npz.write_npz(path, arrays)
    with npz.open_npz(path) as archive:
        found = {name: archive.fetch(name) for name in arrays}
    assert [isinstance(found[name], np.memmap) for name in arrays] == [False, True, True]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert all(found[name].ctypes.data % npz.ALIGNMENT == 0 for name in ("x", "y"))
    assert not found["x"].flags.writeable
    on_device = jax.device_put(found["y"].astype(np.int32))
    np.testing.assert_array_equal(on_device, arrays["y"])
    with np.load(path, allow_pickle=False) as archive:  # any reader of npz reads it
        np.testing.assert_array_equal(archive["x"], arrays["x"])


def test_archives_of_others_are_read_not_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_LARGE", 0)
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    np.savez(tmp_path / "stored.npz", x=x, odd=np.arange(5, dtype=np.int8))
    np.savez_compressed(tmp_path / "compressed.npz", x=x, odd=np.arange(5, dtype=np.int8))
    for name in ("stored", "compressed"):
        with npz.open_npz(tmp_path / f"{name}.npz") as archive:
            assert not isinstance(archive.fetch("odd"), np.memmap)
            np.testing.assert_array_equal(archive.fetch("x"), x)


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        npz.write_npz(tmp_path / f"{name}.npz", {"x": np.arange(1000)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
