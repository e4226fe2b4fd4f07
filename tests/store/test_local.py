"""What only folders have: errors of disks, what killed processes leave."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from dorylax.store.places import LocalStorage


def test_what_was_interrupted_is_no_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a/one", b"1")
    (tmp_path / ".two.dorylax-0123abcd").write_bytes(b"half")
    (tmp_path / ".folder.dorylax-0123abcd").mkdir()
    (tmp_path / ".folder.dorylax-0123abcd" / "three").write_bytes(b"half")
    (tmp_path / ".hidden").write_bytes(b"whole")
    assert storage.names() == [".hidden", "a/one"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path / "stored")
    storage.put("one", b"old")
    (tmp_path / "source").write_bytes(b"new")

    def full(*args: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        storage.put("one", tmp_path / "source")
    assert caught.value.filename == str(tmp_path / "stored" / "one")
    assert [path.name for path in (tmp_path / "stored").iterdir()] == ["one"]
    assert storage.read("one") == b"old"


def test_empty_folders_go_with_their_last_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "stored")
    for name in ("a/b/one", "a/b/two", "a/three"):
        storage.put(name, b"")
    storage.delete("a/b/one")
    assert (tmp_path / "stored" / "a" / "b").is_dir()
    storage.delete("a/b/two")
    assert not (tmp_path / "stored" / "a" / "b").exists()
    storage.delete("a/three")
    assert list(tmp_path.iterdir()) == []
