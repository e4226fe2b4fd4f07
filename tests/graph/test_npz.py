"""Archives of earlier versions and of NumPy: read as they are; damage and sizes that are lies are refused."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dorylax.graph import cache, stored, validate
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.graph_arrays import read_features
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit

_ARRAYS = {"x": np.arange(1000), "y": np.zeros(200_000, np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.npz"


@pytest.fixture
def mapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive as earlier versions wrote it: members are aligned, and a list of checksums is the last one."""
    monkeypatch.setattr(stored, "_LARGE", 256)
    monkeypatch.setattr(cache, "_RESOLUTION", -1e9)
    monkeypatch.setenv("DORYLAX_CACHE", str(path.parent / "cache"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in (("x", np.arange(2000)), ("y", np.arange(3000))):
            np.save(path.parent / "array.npy", array)
            info = zipfile.ZipInfo(f"{name}.npy")
            padding = -(archive.fp.tell() + 30 + len(info.filename) + 4) % 64  # type: ignore[union-attr]
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            archive.writestr(info, (path.parent / "array.npy").read_bytes())
        archive.writestr("checksums.json", "{}")
    return path


def _fetch(path: Path, *names: str, verify: bool = True) -> list[np.ndarray]:
    with open_arrays(path, verify=verify) as archive:
        return [archive.fetch(name) for name in names]


def test_missing_files_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        open_arrays(tmp_path / "nothing.npz")
    np.save(tmp_path / "one.npy", np.arange(3))
    (tmp_path / "text").write_text("no archive")
    for name, message in (("one.npy", "not an npz archive but one array"), ("text", "it is another kind of file")):
        with pytest.raises(GraphError, match=f"{name}: .*{message}"):
            open_arrays(tmp_path / name)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", [Graph, Dataset])
def test_matrices_of_scipy_are_refused(path: Path, form: str, kind: type[Graph | Dataset]) -> None:
    sp.save_npz(path, sp.csr_array(np.eye(3)).asformat(form))
    with pytest.raises(GraphError, match=r"a\.npz: is a matrix of scipy\.sparse\.save_npz: Graph\.from_scipy"):
        kind.from_npz(path)


def _features(path: Path, drop: tuple[str, ...] = (), **changes: object) -> np.ndarray:
    rows = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))
    arrays = {
        "features_indptr": rows.indptr,
        "features_indices": rows.indices,
        "features_data": rows.data,
        "features_shape": np.array([2, 3]),
        **{name: np.asarray(value) for name, value in changes.items()},
    }
    np.savez(path, **{name: array for name, array in arrays.items() if name not in drop})
    with open_arrays(path) as archive:
        return read_features(archive)


def test_compressed_features_become_dense(path: Path) -> None:
    features = _features(path)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, [[0, 2, 0], [1, 0, 3]])
    assert np.isinf(_features(path, features_data=[1e300, 1, 1])[0, 1]), "too large for float32"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features_indices": [1, 0, 3]}, r"features_indices\[2\] = 3 is out of range.*features_shape\[1\] = 3"),
        ({"features_indptr": [0, 3, 1]}, r"features_indptr\[2\] = 1 is below features_indptr\[1\] = 3"),
        ({"features_data": ["a", "b", "c"]}, r"features_data must be real numbers \[N\], got <U1 \[3\]"),
        ({"features_indices": 1}, r"features_indices must be one-dimensional"),
        ({"features_shape": [2]}, r"features_shape must be \(V, F\), two numbers, got 1"),
        ({"features_shape": [2.0, 3.0]}, r"features_shape must hold integers, got float64"),
        (
            {"features_shape": [2, 2**31 - 2]},
            r"features_shape = \(2, 2,147,483,646\), made dense, takes 16\.0 GiB of memory, and this machine has 2\.0 GiB",
        ),
        ({"drop": ("features_data",)}, r"has no array features_data; it has features_indptr"),
    ],
)
def test_bad_compressed_features(
    path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(validate, "memory_limit", lambda: Limit(2**31, "machine"))
    with pytest.raises(GraphError, match=message):
        _features(path, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", range(0, 1200, 41))
def test_whatever_byte_is_damaged_no_other_error_is_raised(path: Path, position: int) -> None:
    np.savez(path, indptr=np.arange(4), labels=np.eye(3))
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x55
    path.write_bytes(data)
    with contextlib.suppress(GraphError):
        _fetch(path, "indptr", "labels")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_others_are_mapped_only_if_aligned(
    path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[..., None]
) -> None:
    monkeypatch.setattr(stored, "_LARGE", 0)
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    save(path, columns=x, **_ARRAYS)
    found = _fetch(path, "columns", *_ARRAYS)
    for array, expected in zip(found, (x, *_ARRAYS.values()), strict=True):
        assert not isinstance(array, np.memmap) or array.ctypes.data % 64 == 0
        np.testing.assert_array_equal(array, expected)


def test_aligned_arrays_are_mapped_and_every_bit_counts(mapped: Path) -> None:
    with open_arrays(mapped) as archive:
        assert (archive.names, archive.maps("x")) == (("x", "y"), True), "the list of checksums is no array"
    for array, size in zip(_fetch(mapped, "x", "y"), (2000, 3000), strict=True):
        assert isinstance(array, np.memmap)
        assert array.ctypes.data % 64 == 0
        np.testing.assert_array_equal(array, np.arange(size))
    times, whole = mapped.stat(), mapped.read_bytes()
    for position in range(500, 16_000, 997):
        time.sleep(0.005)  # more than a tick of the kernel's clock
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        mapped.write_bytes(damaged)
        os.utime(mapped, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(GraphError, match=r"a\.npz: array x is damaged: .*--no-verify"):
            _fetch(mapped, "x")
        _fetch(mapped, "y")
    _fetch(mapped, "x", verify=False)


@pytest.mark.parametrize("shape", ["(0000,)", "(999, )", "(-1,-1)", "(9**9,)"])
def test_a_header_that_declares_another_size_is_refused(path: Path, shape: str) -> None:
    np.savez(path, **_ARRAYS)
    content = path.read_bytes()
    assert content.count(b"(1000,)") == 1
    path.write_bytes(content.replace(b"(1000,)", shape.encode()))
    with pytest.raises(GraphError, match=r"a\.npz: array x cannot be read \("):
        _fetch(path, "x")


def test_arrays_that_do_not_fit_in_memory_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(path, **_ARRAYS)
    monkeypatch.setattr(validate, "memory_limit", lambda: Limit(1 << 18, "machine"))
    _fetch(path, "x")
    with pytest.raises(GraphError, match=r"array y takes 0\.0 GiB of memory, and th"):
        _fetch(path, "y")


def test_python_objects_and_lists_of_values_are_refused(path: Path) -> None:
    np.savez(path, x=np.array([{}], object), name=np.array(["a", "b"]))
    with pytest.raises(GraphError, match=r"array x cannot be read \(it holds Python objects: save numbers"):
        _fetch(path, "x")
    with pytest.raises(GraphError, match="array name must be a single value, got <U1"):
        _fetch(path, "name")


def test_a_damaged_directory_that_hides_members_is_refused(path: Path) -> None:
    np.savez_compressed(path, x=np.arange(10), train_mask=np.ones(10, bool), val_mask=np.zeros(10, bool))
    content = bytearray(path.read_bytes())
    entry = content.find(b"PK\1\2", content.find(b"PK\1\2") + 4)
    content[entry + 33] ^= 2  # the length of the comment of the second entry
    path.write_bytes(content)
    with pytest.raises(GraphError, match="not an npz archive"):
        open_arrays(path)
