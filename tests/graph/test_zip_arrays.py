"""Archives whose sizes are lies: refused before memory is taken for them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.allocations import allocating_less_than

from dorylax.graph import npz, room, zip_arrays
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit

_ARRAYS = {"x": np.arange(1000), "y": np.zeros(200_000, np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.npz"


def _fetch(path: Path, *names: str) -> None:
    with npz.open_npz(path) as archive:
        for name in names:
            archive.fetch(name)


def _relist(path: Path, change: Callable[[list[zipfile.ZipInfo]], object]) -> None:
    """Writes another list at the end of an archive."""
    with zipfile.ZipFile(path, "a") as archive:
        change(archive.filelist)
        archive._didModify = True  # type: ignore[attr-defined]


def _replace_header(path: Path, old: str, new: str) -> None:
    content = path.read_bytes()
    assert content.count(old.encode()) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old.encode(), new.encode()))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_array_that_fits_is_read(path: Path, save: Callable[..., None]) -> None:
    save(path, **_ARRAYS)
    with npz.open_npz(path) as archive:
        for name, array in _ARRAYS.items():
            np.testing.assert_array_equal(archive.fetch(name), array)


@pytest.mark.parametrize("shape", ["(0000,)", "(999, )", "(-1,-1)", "(9**9,)"])
def test_a_header_that_declares_another_size_is_refused(path: Path, shape: str) -> None:
    np.savez(path, **_ARRAYS)
    _replace_header(path, "(1000,)", shape)
    with pytest.raises(GraphError, match=r"a\.npz: array x cannot be read \("):
        _fetch(path, "x")


def test_a_member_that_inflates_beyond_its_size_is_refused_before_memory_is_taken(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros(1 << 24))
    (info,) = zipfile.ZipFile(path).infolist()
    _relist(path, lambda infos: [setattr(one, "file_size", 100_000) for one in infos])
    with (
        allocating_less_than(1 << 26),
        pytest.raises(GraphError, match=f"its header declares {info.file_size:,} bytes, the archive 100,000"),
    ):
        _fetch(path, "x")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_more_than_bytes_can_hold_is_refused(path: Path, save: Callable[..., None]) -> None:
    save(path, x=np.arange(1000))
    _relist(path, lambda infos: [setattr(one, "file_size", 10**15) for one in infos])
    with pytest.raises(GraphError, match=r"bytes cannot hold the 1,000,000,000,000,000 that it declares"):
        _fetch(path, "x")


def test_what_inflates_as_only_made_up_arrays_do_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(path, **_ARRAYS)
    _fetch(path, "y")
    monkeypatch.setattr(zip_arrays, "_RARE_BYTES", 100_000)
    with pytest.raises(GraphError, match=r"array y inflates [0-9,]+-fold, to 0\.0 GiB: where that is meant, store it"):
        _fetch(path, "y")
    _fetch(path, "x")
    np.savez(path, **_ARRAYS)
    _fetch(path, "y")


@pytest.mark.parametrize("source", ["machine", "cgroup"])
def test_what_does_not_fit_in_memory_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    np.savez_compressed(path, **_ARRAYS, z=np.ones(100_000, np.float32))
    monkeypatch.setattr(room, "memory_limit", lambda: Limit(1 << 20, source))
    _fetch(path, "y")
    with pytest.raises(GraphError, match=r"array z with the arrays before it takes 0\.0 GiB of memory, and th"):
        _fetch(path, "y", "z")


def test_what_is_mapped_takes_no_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_LARGE", 1 << 16)
    npz.write_npz(path, _ARRAYS)
    monkeypatch.setattr(room, "memory_limit", lambda: Limit(1 << 15, "machine"))
    _fetch(path, "x", "y")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(path: Path, method: int) -> None:
    np.savez(path, x=np.arange(3))
    content = zipfile.ZipFile(path).read("x.npy")
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(GraphError, match=r"array x cannot be read \(it is compressed in a way that NumPy never uses"):
        _fetch(path, "x")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda infos: infos.append(infos[0]), "x.npy is there twice"),
        (lambda infos: infos.pop(1), "begins an array that its list does not name"),
        (lambda infos: infos.pop(), "begins an array that its list does not name"),
        (
            lambda infos: setattr(infos[1], "filename", "z.npy"),
            "File name in directory 'z.npy' and header b'y.npy' differ.",
        ),
        (lambda infos: setattr(infos[0], "compress_size", infos[0].compress_size + 20), "two arrays share bytes"),
        (lambda infos: setattr(infos[-1], "compress_size", 10**6), "two arrays share bytes"),
    ],
    ids=["twice", "lost", "last lost", "renamed", "longer", "beyond the end"],
)
def test_members_that_contradict_each_other_are_refused(
    path: Path, change: Callable[[list[zipfile.ZipInfo]], object], told: str
) -> None:
    np.savez(path, **_ARRAYS, w=np.arange(2))
    _fetch(path, "x")
    _relist(path, change)
    with pytest.raises(GraphError, match=rf"a\.npz: is damaged \(.*{re.escape(told)}\): restore it"):
        _fetch(path, "x")


@pytest.mark.parametrize("text", ["-" * 8000 + "1", "(" * 8000, "{'descr': " * 500, "{1}", "\\d"])
def test_a_header_that_is_no_header_is_refused(path: Path, text: str) -> None:
    line = text.encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\1\0" + len(line).to_bytes(2, "little") + line)
    with pytest.raises(GraphError, match=r"array x cannot be read"):
        _fetch(path, "x")


def test_one_array_of_any_declared_size_is_not_read(path: Path) -> None:
    path.write_bytes(
        b"\x93NUMPY\1\0\x50\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (10**15,), }".ljust(80)
    )
    with pytest.raises(GraphError, match="not an npz archive but one array"):
        _fetch(path)


def test_what_is_no_array_has_to_fit_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("list.json", bytes(1000))
    with zipfile.ZipFile(path) as archive:
        (info,) = archive.infolist()
        assert zip_arrays.read_bytes(archive, info) == bytes(1000)
        monkeypatch.setattr(room, "memory_limit", lambda: Limit(999, "machine"))
        with pytest.raises(GraphError, match=r"^takes 0\.0 GiB of memory"):
            zip_arrays.read_bytes(archive, info)
