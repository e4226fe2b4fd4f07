from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.graph.datasets import local


def test_without_the_variable_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DORYLAX_DATA", "")
    assert (local.directory(), local.find("cora"), local.names()) == (None, None, [])
    monkeypatch.delenv("DORYLAX_DATA")
    assert (local.directory(), local.find("cora"), local.names()) == (None, None, [])


def test_finds_archives_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DORYLAX_DATA", str(tmp_path))
    for name in ("b.npz", "a.npz", "c.txt", ".d.npz"):
        (tmp_path / name).touch()
    assert local.names() == ["a", "b"]
    assert local.find("a") == tmp_path / "a.npz"
    assert local.find("c") is None
    assert local.find("../" + tmp_path.name + "/a") is None
