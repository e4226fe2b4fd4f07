from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dorylax.errors import RunError
from dorylax.graph.datasets import DatasetError, download
from dorylax.graph.datasets.download import Source
from dorylax.store import folder_lock
from dorylax.terminal.failures import explain

BODY = bytes(range(256)) * 40
"""What the server has to give: 10,240 bytes."""


def source(server: Any, body: bytes = BODY, *, known: bool = True) -> Source:
    server.files["/a.bin"] = body
    return Source("family/a.bin", f"{server.url}/a.bin", hashlib.sha256(body).hexdigest() if known else None)


@pytest.fixture
def part(cache: Path) -> Path:
    """The file that holds what an earlier download received; its folder exists."""
    (cache / "family").mkdir(parents=True)
    return cache / "family" / "a.bin.part"


def fetch(*sources: Source) -> Any:
    return download.fetch("thing", sources)


def test_downloads_once_and_keeps(server: Any, cache: Path) -> None:
    files = fetch(source(server))
    assert files == {"a.bin": cache / "family" / "a.bin"}
    assert files["a.bin"].read_bytes() == BODY
    fetch(source(server))
    assert server.requests == [("/a.bin", None)]
    assert download.is_cached([source(server)])
    assert not list((cache / "family").glob("*.part"))


def test_continues_after_the_connection_was_cut(server: Any, cache: Path) -> None:
    server.cuts["/a.bin"] = [3000, 500]
    assert fetch(source(server))["a.bin"].read_bytes() == BODY
    assert server.requests == [("/a.bin", None), ("/a.bin", "bytes=3000-"), ("/a.bin", "bytes=3500-")]


def test_gives_up_when_nothing_arrives_but_keeps_what_did(server: Any, cache: Path) -> None:
    server.cuts["/a.bin"] = [3000, 0]
    with pytest.raises(RunError, match="the connection ended after 0 of 7240 bytes"):
        fetch(source(server))
    part = cache / "family" / "a.bin.part"
    assert part.read_bytes() == BODY[:3000]
    assert fetch(source(server))["a.bin"].read_bytes() == BODY  # the next call, which continues
    assert server.requests[-1] == ("/a.bin", "bytes=3000-")
    assert not part.exists()


def test_starts_again_where_the_server_does_not_resume(server: Any, cache: Path) -> None:
    server.ranges = False
    server.cuts["/a.bin"] = [3000]
    assert fetch(source(server))["a.bin"].read_bytes() == BODY


def test_a_part_that_is_already_whole_is_used(server: Any, cache: Path, part: Path) -> None:
    part.write_bytes(BODY)
    assert fetch(source(server))["a.bin"].read_bytes() == BODY
    part.write_bytes(BODY + b"!")  # longer than the file: not it
    (cache / "family" / "a.bin").unlink()
    assert fetch(source(server))["a.bin"].read_bytes() == BODY
    assert server.requests[-1] == ("/a.bin", None)
    assert not part.exists()


def test_a_part_that_is_damaged_is_downloaded_anew(server: Any, cache: Path, part: Path) -> None:
    part.write_bytes(bytes(3000))
    assert fetch(source(server))["a.bin"].read_bytes() == BODY
    assert server.requests == [("/a.bin", "bytes=3000-"), ("/a.bin", None)]
    (cache / "family" / "a.bin").unlink()
    part.write_bytes(bytes(3000))
    wanted = source(server)
    server.files["/a.bin"] = BODY[:-1] + b"!"
    with pytest.raises(DatasetError, match="damaged"):
        fetch(wanted)
    assert server.requests[2:] == [("/a.bin", "bytes=3000-"), ("/a.bin", None)]


def test_a_wrong_hash_deletes_the_file_and_says_so(server: Any, cache: Path) -> None:
    wanted = source(server)
    server.files["/a.bin"] = BODY[:-1] + b"!"
    with pytest.raises(DatasetError, match=f"a.bin is damaged or another version.*expected {wanted.sha256}.*deleted"):
        fetch(wanted)
    assert not (cache / "family").exists()
    server.files["/a.bin"] = BODY
    assert fetch(wanted)["a.bin"].read_bytes() == BODY


def test_a_file_that_was_put_there_is_verified(server: Any, cache: Path, part: Path) -> None:
    file = part.with_suffix("")
    file.write_bytes(b"not it")
    with pytest.raises(DatasetError, match="damaged"):
        fetch(source(server))
    assert not file.exists()
    file.write_bytes(BODY)
    fetch(source(server))
    assert server.requests == []


def test_without_a_published_hash_the_first_copy_is_trusted(server: Any, cache: Path) -> None:
    file = fetch(source(server, known=False))["a.bin"]
    record = file.with_name("a.bin.sha256")
    assert record.read_text() == hashlib.sha256(BODY).hexdigest() + "\n"
    fetch(source(server, known=False))
    file.write_bytes(BODY[1:])
    with pytest.raises(DatasetError, match=r"recorded in .*a\.bin\.sha256 when the file was first seen"):
        fetch(source(server, known=False))


@pytest.mark.parametrize("record", [b"", b"\xff" * 64 + b"\n", b"\n" * 65, b"0" * 63 + b"\n"])
def test_a_damaged_record_of_a_hash_is_one_line_and_the_file_stays(server: Any, cache: Path, record: bytes) -> None:
    file = fetch(source(server, known=False))["a.bin"]
    file.with_name("a.bin.sha256").write_bytes(record)
    with pytest.raises(DatasetError, match=r"a\.bin\.sha256 is damaged, it holds no SHA-256: delete it") as caught:
        fetch(source(server, known=False))
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == BODY


def test_without_a_published_hash_a_part_is_not_continued(server: Any, cache: Path, part: Path) -> None:
    part.write_bytes(b"half of another version")
    assert fetch(source(server, known=False))["a.bin"].read_bytes() == BODY
    assert server.requests == [("/a.bin", None)]


def test_offline_the_error_says_what_to_put_where(server: Any, cache: Path) -> None:
    here = source(server)
    nowhere = "http://127.0.0.1:1"  # nothing listens on port 1
    one = dataclasses.replace(here, path="family/b.bin", url=f"{nowhere}/b.bin")
    two = Source("family/c.bin", f"{nowhere}/c.bin")
    with pytest.raises(RunError) as caught:
        fetch(here, one, two)
    message = str(caught.value)
    assert "data set 'thing' is not cached" in message
    assert "these 2 files" in message  # the first one arrived
    assert f"{cache}/family/b.bin  from {nowhere}/b.bin  (SHA-256 {here.sha256})" in message
    assert f"{cache}/family/c.bin  from {nowhere}/c.bin  (no SHA-256 published)" in message
    assert "DORYLAX_DATA" in message
    explained = explain(caught.value)
    assert explained is not None
    assert explained.code == 1  # nothing was typed wrongly


def test_an_answer_that_is_not_the_file(server: Any, cache: Path) -> None:
    wanted = source(server)
    del server.files["/a.bin"]
    with pytest.raises(RunError, match="Not Found"):
        fetch(wanted)


def test_a_disk_that_fails_is_not_the_network(server: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told to put files in place, and nothing is asked for again."""
    wanted = source(server)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="Input/output error") as caught:
            fetch(wanted)
    assert explain(caught.value) == (f"{cache / 'family' / 'a.bin'}: Input/output error", 1)
    assert len(server.requests) == 1
    fetch(wanted)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", fail)
        with pytest.raises(OSError, match="Input/output error") as caught:
            fetch(wanted)
    assert explain(caught.value) == (f"{cache / 'family' / 'a.bin'}: Input/output error", 1)


def test_what_is_cached_needs_no_lock(server: Any, cache: Path) -> None:
    """The cache may be read-only."""
    fetch(source(server))
    with folder_lock.locked(cache / "family"):
        assert fetch(source(server))["a.bin"].read_bytes() == BODY
