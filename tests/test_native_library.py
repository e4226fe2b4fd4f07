"""Where native libraries are looked for."""

from __future__ import annotations

import sys

from dorylax.native_library import candidates, is_off


def test_the_import_path_is_searched(tmp_path, monkeypatch):
    folder = tmp_path / "dorylax" / "some" / "where"
    folder.mkdir(parents=True)
    (folder / "libone.so").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path)])
    assert list(candidates("some/where", "libone")) == [folder / "libone.so"]
    assert list(candidates("some/where", "libtwo")) == []


def test_the_switch(monkeypatch):
    monkeypatch.setenv("DORYLAX_NATIVE", "0")
    assert is_off()
    monkeypatch.setenv("DORYLAX_NATIVE", "avx2")
    assert not is_off()
