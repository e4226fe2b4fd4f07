"""The model of a disk by which the family `power_loss` judges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from hostile.crash_states import Disk, restored
from hostile.disk_shim import Kind, Operation

ROOT = Path("/disk")


def did(kind: Kind, path: str, target: str = "", *, offset: int = 0, data: bytes = b"", error: int = 0) -> Operation:
    return Operation(kind, error, str(ROOT / path), str(ROOT / target) if target else "", offset, data)


def disk(*done: Operation) -> Disk:
    found = Disk(ROOT)
    for one in done:
        found.apply(one)
    return found


CREATED = (did(Kind.CREATE, "new"), did(Kind.WRITE, "new", data=b"content"))


def test_what_is_synced_is_there_and_nothing_else_need_be() -> None:
    assert disk(*CREATED).after("nothing") == {}
    assert disk(*CREATED).after("everything") == {"new": b"content"}
    assert disk(*CREATED).after("names alone") == {"new": b""}
    assert disk(*CREATED, did(Kind.SYNC, "new")).after("nothing") == {}  # it has no name yet
    assert disk(*CREATED, did(Kind.SYNC, "")).after("nothing") == {"new": b""}  # it has no content yet
    assert disk(*CREATED, did(Kind.SYNC, "new"), did(Kind.SYNC, "")).after("nothing") == {"new": b"content"}


def test_a_rename_without_a_sync_may_leave_an_empty_file() -> None:
    old = (did(Kind.CREATE, "file"), did(Kind.WRITE, "file", data=b"old"), did(Kind.SYNC, "file"), did(Kind.SYNC, ""))
    renamed = disk(*old, *CREATED, did(Kind.RENAME, "new", "file"))
    assert renamed.after("nothing") == {"file": b"old"}
    assert renamed.after("names alone") == {"file": b""}
    safe = disk(*old, *CREATED, did(Kind.SYNC, "new"), did(Kind.RENAME, "new", "file"))
    left = [safe.after("some", seed) for seed in range(50)]
    assert {state["file"] for state in left} == {b"old", b"content"}
    safe.apply(did(Kind.SYNC, ""))
    assert {safe.after("some", seed)["file"] for seed in range(50)} == {b"content"}
    assert safe.after("nothing") == {"file": b"content"}


def test_an_exchange_is_one_change() -> None:
    folders = (did(Kind.MKDIR, "a"), did(Kind.CREATE, "a/x"), did(Kind.MKDIR, "b"), did(Kind.CREATE, "b/y"))
    found = disk(*folders, *(did(Kind.SYNC, where) for where in ("a", "b", "")), did(Kind.EXCHANGE, "a", "b"))
    left = [found.after("some", seed) for seed in range(50)]
    before = {"a": None, "a/x": b"", "b": None, "b/y": b""}
    after = {"a": None, "a/y": b"", "b": None, "b/x": b""}
    assert all(state in (before, after) for state in left)
    assert before in left
    assert after in left
    found.apply(did(Kind.SYNC, ""))
    assert found.after("nothing") == after


def test_a_file_that_was_renamed_away_does_not_come_back() -> None:
    found = disk(
        *(did(Kind.MKDIR, "a"), did(Kind.CREATE, "a/x"), did(Kind.SYNC, "a/x"), did(Kind.RENAME, "a/x", "x")),
        did(Kind.SYNC, ""),
    )
    for seed in range(50):
        assert found.after("some", seed) == {"a": None, "x": b""}
    assert found.after("everything") == {"a": None, "x": b""}


def test_what_is_written_after_a_rename_goes_to_the_file() -> None:
    found = disk(*CREATED, did(Kind.RENAME, "new", "x"), did(Kind.WRITE, "x", offset=3, data=b"T"))
    assert found.after("everything") == {"x": b"conTent"}


def test_parts_are_lost_in_sectors() -> None:
    data = bytes([1]) * 512 + bytes([2]) * 512
    found = disk(did(Kind.CREATE, "x"), did(Kind.SYNC, ""), did(Kind.WRITE, "x", data=data))
    left = {found.after("some", seed)["x"] for seed in range(100)}
    assert {b"", data, data[:512], bytes(512) + data[512:], data[:512] + bytes(512)} <= left


def test_folders_removed_files_and_truncations() -> None:
    begin = {"a": None, "a/x": b"old", "b": b"long"}
    found = Disk(ROOT, begin)
    for one in (
        did(Kind.UNLINK, "a/x"),
        did(Kind.RMDIR, "a"),
        did(Kind.TRUNCATE, "b", offset=2),
        did(Kind.UNLINK, "b", error=5),
    ):
        found.apply(one)
    assert found.after("nothing") == begin
    assert found.after("everything") == {"b": b"lo"}
    found.apply(did(Kind.SYNC, ""))
    assert found.after("nothing") == {"b": b"long"}


def test_a_state_is_restored(tmp_path: Path) -> None:
    restored({"a": None, "a/x": b"1", "b": b""}, tmp_path)
    assert (tmp_path / "a" / "x").read_bytes() == b"1"
    assert (tmp_path / "b").read_bytes() == b""


def test_an_operation_in_no_folder_is_an_error() -> None:
    with pytest.raises(AssertionError, match="none"):
        disk(did(Kind.CREATE, "none/x"))
