"""The folder of the cache, its limits, and the memory of verified files, which no change of a file outlives."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.graph import cache
from dorylax.graph.cache import _is_known as is_known
from dorylax.graph.cache import _remember as remember
from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.graph.mapped import State

_OLD = State(1, 2, 3, 4, 5)


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DORYLAX_CACHE", "~/mine")
    assert cache_directory() == tmp_path / "mine"
    monkeypatch.delenv("DORYLAX_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "dorylax"
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # as good as unset
    assert cache_directory() == tmp_path / ".cache" / "dorylax"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "dorylax"


def test_without_a_home_it_is_a_folder_of_this_user_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DORYLAX_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the list of users has no entry
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = cache_directory()
    assert found.parent == tmp_path
    assert found.stat().st_mode & 0o077 == 0
    assert cache_directory() == found
    found.rename(tmp_path / "elsewhere")
    found.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is somebody else's: set DORYLAX_CACHE"):
        cache_directory()


@pytest.mark.parametrize("limits", [{"most_files": 2, "most_bytes": 100}, {"most_files": 100, "most_bytes": 2}])
def test_the_oldest_go_first_but_never_the_newest(tmp_path: Path, limits: dict[str, int]) -> None:
    for age, name in enumerate(("newest", "a", "b", ".half-written.12345678")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    os.utime(tmp_path / "newest", (1, 1))
    drop_oldest(tmp_path / "newest", **limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "newest"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "verified-1"


def test_a_verdict_is_of_one_state_and_one_part(folder: Path) -> None:
    assert not is_known(_OLD, "x")
    remember(_OLD, "x", time.time(), "data.npz")
    assert is_known(_OLD, "x")
    assert not is_known(_OLD, "y")
    for field in State._fields:
        assert not is_known(_OLD._replace(**{field: 9}), "x"), field


@pytest.mark.parametrize(("field", "ago"), [("modified", 2.5), ("changed", 2.5), ("changed", -60)])
def test_what_changed_just_before_is_not_remembered(folder: Path, field: str, ago: float) -> None:
    now = time.time()  # FAT counts by two seconds
    remember(_OLD._replace(**{field: int((now - ago) * 1e9)}), "x", now, "data.npz")
    assert not folder.exists()


def test_it_does_not_grow_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_FILES", 3)
    for number in range(6):
        remember(_OLD, f"{number}", time.time(), "data.npz")
        for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime_ns)):
            os.utime(path, (1000 - age, 1000 - age))
        assert is_known(_OLD, "0"), "what is in use stays"
    assert len(list(folder.iterdir())) == 3


def test_whatever_is_wrong_with_the_cache_costs_time_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    remember(_OLD, "x", time.time(), "data.npz")
    assert not is_known(_OLD, "x")
    folder.unlink()
    remember(_OLD, "x", time.time(), "\udcff.npz")  # a name that is no UTF-8

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "cache_directory", homeless)
    remember(_OLD, "x", time.time(), "data.npz")
    assert not is_known(_OLD, "x")


def test_a_cache_that_is_read_only_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(_OLD, "x", time.time(), "data.npz")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.utime", refuse)
    assert is_known(_OLD, "x")
    assert not is_known(_OLD, "y")
