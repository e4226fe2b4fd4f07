"""Where the cache is, and what goes first when a folder of it is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dorylax.graph.cache import cache_directory, drop_oldest


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("DORYLAX_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "dorylax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "dorylax"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "dorylax"


@pytest.mark.parametrize("limits", [{"most_files": 2, "most_bytes": 100}, {"most_files": 100, "most_bytes": 2}])
def test_the_oldest_go_first_but_never_the_newest(tmp_path: Path, limits: dict[str, int]) -> None:
    for age, name in enumerate(("newest", "a", "b", ".half-written.12345678")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    os.utime(tmp_path / "newest", (1, 1))
    drop_oldest(tmp_path / "newest", **limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "newest"]
