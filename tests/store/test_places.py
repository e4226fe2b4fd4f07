"""Folders of stored files, and copies: made once, checked whenever they are used, shared by processes."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from dorylax.store.base import Content, Storage, StorageError, content_of
from dorylax.store.durable import arriving_file
from dorylax.store.places import LocalStorage, open_storage


def put(storage: Storage, name: str, content: bytes, tmp_path: Path) -> Content:
    source = tmp_path / "source"
    source.write_bytes(content)
    storage.put(name, source)
    return content_of(source)


def copied(storage: Storage, name: str, content: Content, copies: Path) -> Path:
    folder, _, file = name.rpartition("/")
    with storage.verified(folder, {file: content}, copies) as found:
        return found / file


def test_files_of_this_machine_are_read_where_they_lie(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "stored"))
    content = put(storage, "a/one", b"content", tmp_path)
    assert copied(storage, "a/one", content, tmp_path / "copies") == tmp_path / "stored" / "a" / "one"
    with storage.verified("a", {"one": content}) as folder:
        assert folder == tmp_path / "stored" / "a"
    assert not (tmp_path / "copies").exists()
    storage.put("a/one", b"CONTENT")
    told = f"{tmp_path / 'stored' / 'a' / 'one'} is damaged or another file: its SHA-256 is "
    with pytest.raises(StorageError, match=f"^{re.escape(told)}"):
        copied(storage, "a/one", content, tmp_path / "copies")
    storage.delete("a/one")
    with pytest.raises(FileNotFoundError, match="one"):
        copied(storage, "a/one", content, tmp_path / "copies")


def test_others_are_fetched_once(s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, copies = put(s3, "a/one", b"content", tmp_path), tmp_path / "deep" / "copies"
    path = copied(s3, "a/one", content, copies)
    assert (path, path.read_bytes()) == (copies / "one", b"content")
    monkeypatch.setattr(s3._client, "download_fileobj", None)  # type: ignore[attr-defined]
    assert copied(s3, "a/one", content, copies) == path


def test_temporary_copies_are_removed(s3: Storage, tmp_path: Path) -> None:
    contents = {name: put(s3, f"a/{name}", name.encode(), tmp_path) for name in ("one", "deep/two")}
    with s3.verified("a", contents) as folder:
        assert {name: (folder / name).read_bytes() for name in contents} == {"one": b"one", "deep/two": b"deep/two"}
    assert not folder.exists()


def test_a_copy_that_is_damaged_is_fetched_anew(s3: Storage, tmp_path: Path) -> None:
    content = put(s3, "one", b"content", tmp_path)
    path = copied(s3, "one", content, tmp_path / "copies")
    for damaged in (b"conten", b"CONTENT"):
        path.write_bytes(damaged)
        assert copied(s3, "one", content, tmp_path / "copies").read_bytes() == b"content"


def test_what_was_killed_does_not_count_and_goes_in_the_end(s3: Storage, tmp_path: Path) -> None:
    content, copies = put(s3, "one", b"content", tmp_path), tmp_path / "copies"
    copies.mkdir()
    (copies / ".one.dorylax-0123abcd").write_bytes(b"cont")
    with arriving_file(copies / "running") as running:
        assert copied(s3, "one", content, copies).read_bytes() == b"content"
        assert sorted(copies.iterdir()) == [Path(running.name), copies / "one"]


def test_two_fetch_at_once(s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, copies = put(s3, "one", b"content" * 1000, tmp_path), tmp_path / "copies"
    both, found = threading.Barrier(2, timeout=60), []
    fetch = s3._client.download_fileobj  # type: ignore[attr-defined]

    def together(*args: object) -> None:
        both.wait()
        fetch(*args)

    monkeypatch.setattr(s3._client, "download_fileobj", together)  # type: ignore[attr-defined]
    threads = [threading.Thread(target=lambda: found.append(copied(s3, "one", content, copies))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [copies / "one"] * 2
    assert content_of(found[0]) == content
    assert list(copies.iterdir()) == [found[0]]


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
