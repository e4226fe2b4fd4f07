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
    source = tmp_path / "source"
    source.write_bytes(content)
    assert content_of(source) == of(content)
    storage.put("folder/file", source)
    with storage.verified("folder", {"file": of(content)}) as folder:
        assert (folder / "file").read_bytes() == content
    assert storage.names() == ["folder/file"]


def test_a_function_writes_a_file_that_is_there_whole_or_not_at_all(storage: Storage) -> None:
    storage.put("a/one", b"old")

    def half(file: BinaryIO) -> None:
        file.write(SMALL)
        raise KeyError

    with pytest.raises(KeyError):
        storage.put("a/one", half)
    assert (storage.names(), storage.read("a/one")) == (["a/one"], b"old")
    storage.put("a/one", lambda file: file.write(LARGE))
    assert (storage.names(), storage.read("a/one")) == (["a/one"], LARGE)


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
def test_other_content_than_expected_is_refused(storage: Storage, tmp_path: Path, other: bytes) -> None:
    storage.put("a/one", other)
    told = re.escape(f"{storage.url}/a/one is damaged or another file: ") + "it.* (bytes|SHA-256).* expected "
    for copies in (None, tmp_path / "copies"):
        with (
            pytest.raises(StorageError, match=f"^{told}"),
            storage.verified("a", {"one": of(SMALL)}, copies),
        ):
            pass
    assert not list((tmp_path / "copies").rglob("*"))


def test_a_missing_file_is_named(storage: Storage, tmp_path: Path) -> None:
    storage.put("one", SMALL)
    with pytest.raises(FileNotFoundError, match=re.escape(f"{storage.url}/none")):
        storage.read("none")
    with pytest.raises(FileNotFoundError, match="none"), storage.verified("", {"none": of(SMALL)}):
        pass
    with pytest.raises(FileNotFoundError, match="nowhere"):
        storage.put("two", tmp_path / "nowhere")
    assert storage.names() == ["one"]


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../other", "a/../../b", "a//b", "a/", ".", "a\0b"])
def test_names_lead_nowhere_else(storage: Storage, name: str) -> None:
    for ask in (
        storage.read,
        storage.delete,
        lambda name: storage.clear(name or "/"),
        lambda name: storage.put(name, SMALL),
        lambda name: storage.put(name, Path(__file__)),
        lambda name: storage.verified("", {name: of(SMALL)}).__enter__(),
    ):
        with pytest.raises(StorageError, match="is no name of a stored file: it must be relative"):
            ask(name)
    assert storage.names() == []
