"""The folder of the cache, its limits, and the memory of verified files, which no change of a file outlives."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.graph import cache
from dorylax.graph.cache import cache_directory, drop_oldest, verified_once
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
    monkeypatch.setattr(cache, "state_of", lambda _: _OLD)
    return tmp_path / "cache" / "verified-1"


def is_read(what: str = "x") -> bool:
    """Whether a part of a file is read for its verification."""
    read: list[str] = []
    with Path(__file__).open("rb") as stream:
        assert verified_once(stream, what, lambda: read.append(what) is None)
    return bool(read)


def test_a_verification_is_of_one_state_and_one_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_read(), is_read(), is_read("y"), is_read("y")] == [True, False, True, False]
    for field in State._fields:
        monkeypatch.setattr(cache, "state_of", lambda _, field=field: _OLD._replace(**{field: 9}))
        assert is_read(), field


@pytest.mark.parametrize(("field", "ago"), [("modified", 2.5), ("changed", 2.5), ("changed", -60)])
def test_what_changed_just_before_is_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, field: str, ago: float
) -> None:
    """FAT counts by two seconds."""
    state = _OLD._replace(**{field: int((time.time() - ago) * 1e9)})
    monkeypatch.setattr(cache, "state_of", lambda _: state)
    assert [is_read(), is_read(), folder.exists()] == [True, True, False]


def test_it_does_not_grow_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_FILES", 3)
    for number in range(6):
        assert is_read(f"{number}")
        for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime_ns)):
            os.utime(path, (1000 - age, 1000 - age))
        assert not is_read("0"), "what is in use stays"
    assert len(list(folder.iterdir())) == 3


def test_a_cache_that_cannot_be_used_costs_time_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    assert [is_read(), is_read()] == [True, True]
    folder.unlink()

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as patch:
        patch.setattr(cache, "cache_directory", homeless)
        assert [is_read(), is_read()] == [True, True]

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    assert is_read()
    monkeypatch.setattr("os.utime", refuse)
    assert not is_read(), "a read-only cache is read"
