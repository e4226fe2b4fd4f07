"""Archives: what cannot be read is said with the file's name; writing is all or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zipfile

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from dorylax.graph import npz, room
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"), npz.open_npz(tmp_path / "nothing.npz"):
        pass


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


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", [Graph, Dataset])
def test_matrices_of_scipy_are_refused(tmp_path, form, kind):
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.eye(3)).asformat(form))
    with pytest.raises(GraphError, match=r"a\.npz: is a matrix of scipy\.sparse\.save_npz: Graph\.from_scipy"):
        kind.from_npz(tmp_path / "a.npz")


def test_compressed_features_become_dense(tmp_path):
    features = _features(tmp_path / "x.npz")
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, [[0, 2, 0], [1, 0, 3]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features_indices": [1, 0, 3]}, r"features_indices\[2\] = 3 is out of range.*features_shape\[1\] = 3"),
        ({"features_indices": [1, 0, -1]}, r"features_indices\[2\] = -1 is negative"),
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
        (
            {"features_shape": [2, 2**31 - 2]},
            r"features_shape = \(2, 2,147,483,646\), made dense, takes 16\.0 GiB of memory, and this machine has 2\.0 GiB",
        ),
        (
            {"features_shape": [2, 134_218_000]},
            r"features_shape = \(2, 134,218,000\) makes 1\.0 GiB of [0-9]+ bytes: where that is meant, store",
        ),
        ({"drop": ("features_data",)}, r"has no array features_data; it has features_indptr"),
    ],
)
def test_bad_compressed_features(tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(room, "memory_limit", lambda: Limit(2**31, "machine"))
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


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """An archive whose arrays are mapped, and where verdicts are kept; every file counts as old enough for one."""
    monkeypatch.setattr(npz, "_LARGE", 256)
    monkeypatch.setattr(npz.checksums, "BLOCK", 4096)
    monkeypatch.setattr(npz.verdicts, "_GRAIN", -1e9)
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.npz"
    npz.write_npz(path, {"x": np.arange(2000), "y": np.arange(3000)})
    return path


def _fetch(path, name="x", *, verify=True):
    with npz.open_npz(path, verify=verify) as archive:
        return archive.fetch(name)


def _flip(path, name, offset=9000):
    """A bit of an array, in place and under the old times."""
    info, times = zipfile.ZipFile(path).getinfo(f"{name}.npy"), path.stat()
    with path.open("r+b") as file:
        file.seek(info.header_offset + offset)
        byte = file.read(1)[0]
        file.seek(info.header_offset + offset)
        file.write(bytes([byte ^ 16]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_flipped_bit_of_a_mapped_array_is_refused_with_its_place(mapped, tmp_path):
    for _ in range(2):
        assert isinstance(_fetch(mapped), np.memmap)
    time.sleep(0.02)  # more than a tick of the kernel's clock
    _flip(mapped, "x")
    with pytest.raises(
        GraphError, match=r"a\.npz: array x is damaged: bytes 8,256 … 12,351 of the file \(block 3 of 4\)"
    ):
        _fetch(mapped)
    assert _fetch(mapped, "y")[-1] == 2999
    assert _fetch(mapped, verify=False)[0] == 0


def test_every_bit_of_a_mapped_array_counts(mapped):
    with zipfile.ZipFile(mapped) as archive:
        info = archive.getinfo("x.npy")
    whole, first = mapped.read_bytes(), 64 * (info.header_offset // 64) + 64
    for offset in range(first, first + info.file_size, 397):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        mapped.write_bytes(damaged)
        with pytest.raises(GraphError, match=r"array x (is damaged|cannot be read)"):
            _fetch(mapped)


def test_what_was_found_right_is_not_read_again(mapped, monkeypatch):
    reads = []
    check = npz.checksums.wrong_blocks
    monkeypatch.setattr(npz.checksums, "wrong_blocks", lambda *given: reads.append(1) or check(*given))
    for _ in range(3):
        _fetch(mapped)
    assert len(reads) == 1
    _fetch(mapped, "y")
    assert len(reads) == 2, "another array"
    os.utime(mapped)
    _fetch(mapped)
    assert len(reads) == 3, "another time"
    shutil.copy2(mapped, mapped.with_name("b.npz"))
    _fetch(mapped.with_name("b.npz"))
    assert len(reads) == 4, "another file with the same content and time"
    monkeypatch.setattr(npz.verdicts, "_GRAIN", 3.0)
    os.utime(mapped)
    for _ in range(2):
        _fetch(mapped)
    assert len(reads) == 6, "a file that is as new as its check"


def test_without_verifying_nothing_is_read_and_nothing_kept(mapped, tmp_path, monkeypatch):
    monkeypatch.setattr(npz.checksums, "wrong_blocks", lambda *_: pytest.fail("it is read"))
    np.testing.assert_array_equal(_fetch(mapped, verify=False), np.arange(2000))
    assert not (tmp_path / "cache").exists()


def _as_before(path):
    """The archive as dorylax wrote it before it kept checksums."""
    with zipfile.ZipFile(path, "a") as archive:
        last = archive.filelist.pop()
        del archive.NameToInfo[last.filename]
        archive.start_dir, archive._didModify = last.header_offset, True


def test_archives_without_checksums_are_compared_with_those_of_zip(mapped):
    _as_before(mapped)
    assert isinstance(_fetch(mapped), np.memmap)
    time.sleep(0.02)
    _flip(mapped, "x")
    with pytest.raises(GraphError, match=r"array x is damaged: bytes .* \(block 1 of 1\) are not what was written"):
        _fetch(mapped)


def test_an_array_that_the_list_of_checksums_names_may_not_be_missing(mapped):
    with zipfile.ZipFile(mapped, "a") as archive:
        archive.filelist[0].filename = "z.npy"
        archive._didModify = True
    content = mapped.read_bytes()
    mapped.write_bytes(content.replace(b"x.npy", b"z.npy", 1))
    with pytest.raises(GraphError, match=r"is damaged \(array x is missing, which checksums\.json lists\)"):
        _fetch(mapped, "y")


def test_checksums_of_another_size_are_refused(mapped):
    with zipfile.ZipFile(mapped) as archive:
        listed, arrays = archive.read("checksums.json"), archive.namelist()[:2]
    assert arrays == ["x.npy", "y.npy"]
    _as_before(mapped)
    with zipfile.ZipFile(mapped, "a") as archive:
        archive.writestr("checksums.json", listed.replace(b'"bytes":16128', b'"bytes":16127'))
    with pytest.raises(GraphError, match=r"array x cannot be read \(its checksums are of 16,127 bytes"):
        _fetch(mapped)


def test_the_list_of_checksums_is_no_array(mapped):
    with npz.open_npz(mapped) as archive:
        assert archive.names == ("x", "y")
    with np.load(mapped) as archive:
        assert archive.files == ["x", "y", "checksums.json"]
