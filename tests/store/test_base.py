"""What every storage guarantees, whatever it is."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

import pytest

from dorylax.store.base import Content, Storage, StorageError, content_of

SMALL, LARGE = b"a few bytes", bytes(range(256)) * 100_000
"""The large one goes to S3 in parts."""


def of(content: bytes) -> Content:
    return Content(len(content), hashlib.sha256(content).hexdigest())


def test_what_is_put_is_listed_and_read(storage: Storage) -> None:
    assert storage.names() == storage.names("b") == []
    storage.put("b/deep/two", SMALL)
    storage.put("b/one", b"")
    storage.put("a", SMALL)
    storage.put("bb", SMALL)
    assert storage.names() == ["a", "b/deep/two", "b/one", "bb"]
    assert storage.names("b") == ["b/deep/two", "b/one"]
    assert storage.names("b/deep") == ["b/deep/two"]
    assert (storage.read("b/deep/two"), storage.read("b/one")) == (SMALL, b"")
    storage.put("a", b"another")
    assert storage.read("a") == b"another"


@pytest.mark.parametrize("content", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
def test_files_there_and_back(storage: Storage, tmp_path: Path, content: bytes) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content)
    target.write_bytes(b"old")
    assert storage.put_file("folder/file", source) == of(content) == content_of(source)
    storage.fetch("folder/file", target, of(content))
    assert target.read_bytes() == content
    assert storage.names() == ["folder/file"]


def test_a_function_writes_a_file_that_is_there_whole_or_not_at_all(storage: Storage, tmp_path: Path) -> None:
    storage.put("a/one", b"old")

    def half(file: BinaryIO) -> None:
        file.write(SMALL)
        raise KeyError

    with pytest.raises(KeyError):
        storage.put("a/one", half)
    assert (storage.names(), storage.read("a/one")) == (["a/one"], b"old")
    storage.put("a/one", lambda file: file.write(LARGE))
    storage.fetch("a/one", tmp_path / "target", of(LARGE))
    assert storage.names() == ["a/one"]


def test_files_of_killed_processes_are_not_listed_and_are_cleared(storage: Storage) -> None:
    left = ("a/.two.dorylax-0123abcd", ".folder.dorylax-0123abcd/three")
    for name in ("one", ".hidden", "a/two", *left):
        storage.put(name, SMALL)
    assert storage.names() == [".hidden", "a/two", "one"]
    storage.clear()
    assert storage.names() == [".hidden", "a/two", "one"]
    for name in left:
        with pytest.raises(FileNotFoundError):
            storage.read(name)


def test_a_folder_is_cleared_with_all_files_in_it(storage: Storage) -> None:
    for name in ("a/one", "a/deep/two", "a/.three.dorylax-0123abcd", "ab/one", "c"):
        storage.put(name, SMALL)
    for _ in range(2):
        storage.clear("a")
        assert storage.names() == ["ab/one", "c"]
    with pytest.raises(FileNotFoundError):
        storage.read("a/.three.dorylax-0123abcd")


def test_what_is_deleted_is_gone(storage: Storage) -> None:
    storage.put("b/one", SMALL)
    storage.put("a", SMALL)
    storage.delete("b/one")
    storage.delete("b/one")
    storage.delete("never/there")
    assert storage.names() == ["a"]
    with pytest.raises(FileNotFoundError):
        storage.read("b/one")


@pytest.mark.parametrize("other", [SMALL[:-1], SMALL[:-1] + b"!"], ids=["cut off", "changed"])
def test_what_is_not_expected_is_not_fetched(storage: Storage, tmp_path: Path, other: bytes) -> None:
    storage.put("one", other)
    target = tmp_path / "target"
    target.write_bytes(b"old")
    told = re.escape(f"{storage.url}/one is damaged or another file: ") + "it.* (bytes|SHA-256).* expected "
    with pytest.raises(StorageError, match=f"^{told}"):
        storage.fetch("one", target, of(SMALL))
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["target"]


def test_what_is_not_there_is_told_by_its_place(storage: Storage, tmp_path: Path) -> None:
    storage.put("one", SMALL)
    for ask in (storage.read, lambda name: storage.fetch(name, tmp_path / "target", of(SMALL))):
        with pytest.raises(FileNotFoundError, match=re.escape(f"{storage.url}/none")):
            ask("none")
    assert not (tmp_path / "target").exists()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        storage.put_file("two", tmp_path / "nowhere")
    assert storage.names() == ["one"]


def test_a_full_disk_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.put("one", SMALL)
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "missing" / "target"))):
        storage.fetch("one", tmp_path / "missing" / "target", of(SMALL))


@pytest.mark.parametrize("size", [3, len(LARGE)])
def test_a_file_that_changes_while_it_is_put(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source = tmp_path / "source"
    source.write_bytes(LARGE[:size])
    known, changed = content_of(source), iter([True])

    def then_changed(path: Path) -> Content:
        if path != source or not next(changed, False):
            return content_of(path)
        source.write_bytes(b"!" * size)
        return known

    monkeypatch.setattr("dorylax.store.base.content_of", then_changed)
    with pytest.raises(StorageError, match=f"^{re.escape(str(source))} changed while it was .*: run again when nobody"):
        storage.put_file("one", source)
    assert storage.names() == []


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../other", "a/../../b", "a//b", "a/", ".", "a\0b"])
def test_names_lead_nowhere_else(storage: Storage, tmp_path: Path, name: str) -> None:
    for ask in (
        storage.read,
        storage.delete,
        lambda name: storage.clear(name or "/"),
        lambda name: storage.put(name, SMALL),
        lambda name: storage.put_file(name, Path(__file__)),
        lambda name: storage.fetch(name, tmp_path / "target", of(SMALL)),
    ):
        with pytest.raises(StorageError, match="is no name of a stored file: it must be relative"):
            ask(name)
    assert storage.names() == []
