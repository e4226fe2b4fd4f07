"""What was checked is remembered, unless anything could have changed since; whatever is wrong with the cache costs time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dorylax.graph import verification
from dorylax.graph.verification import State
from dorylax.graph.verification import _is_known as is_known
from dorylax.graph.verification import _remember as remember

_OLD = State(1, 2, 3, 4, 5)


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
    monkeypatch.setattr(verification, "_MOST_FILES", 3)
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

    monkeypatch.setattr(verification, "cache_directory", homeless)
    remember(_OLD, "x", time.time(), "data.npz")
    assert not is_known(_OLD, "x")


def test_a_cache_that_is_read_only_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(_OLD, "x", time.time(), "data.npz")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.utime", refuse)
    assert is_known(_OLD, "x")
    assert not is_known(_OLD, "y")
