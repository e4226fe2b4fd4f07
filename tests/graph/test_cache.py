"""Where the cache is, and what goes first when a folder of it is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.graph.cache import cache_directory, drop_oldest


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
