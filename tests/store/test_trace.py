from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dorylax.store.run_directory import RunDirectoryError
from dorylax.store.trace import TraceFile, cut, line_of, mark, read


def task(epoch: int, name: str = "∇GA") -> dict[str, Any]:
    arguments = {"server": 0, "interval": 0, "epoch": epoch, "kind": "graph"}
    times = {"ts": 2.5 * epoch, "dur": 2.5}
    return {"name": name, "cat": "graph", "ph": "X", **times, "pid": 0, "tid": 0, "args": arguments}


def named(lane: int) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": {"name": f"graph {lane}"}}


def write(path: Path, *, epochs: int, first: int = 0) -> None:
    """A trace with a lane, two tasks and a mark for each epoch."""
    file = TraceFile(path)
    for epoch in range(first, epochs):
        events = [named(epoch), task(epoch), task(epoch), mark(epoch + 1, 2.5 * epoch, file.size)]
        file.append([line_of(event) for event in events])
    file.close()


def epochs_in(path: Path) -> list[int]:
    events = list(read(path))
    assert json.loads(path.read_text())["traceEvents"] == events
    return [event["args"]["epoch"] for event in events if event["ph"] == "X"]


def test_it_is_strict_json_whenever_nothing_is_being_written(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.json")
    events: list[dict[str, Any]] = []
    for count in (0, 1, 0, 2):
        file.append([line_of(task(k)) for k in range(count)])
        events += [task(k) for k in range(count)]
        text = file.path.read_text()
        assert json.loads(text) == {"schema": 1, "displayTimeUnit": "ms", "traceEvents": events}
        assert file.size == len(text.encode())
        assert list(read(file.path)) == events
    file.close()
    file.close()
    with pytest.raises(ValueError, match="JSON"):
        line_of({"ts": float("nan")})


def test_going_on_drops_what_will_be_done_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write(path, epochs=5)
    file = TraceFile(path, 3)
    assert epochs_in(path) == [0, 0, 1, 1, 2, 2]
    assert [event["args"]["epochs"] for event in file.marks] == [1, 2, 3]
    assert file.names == [named(0), named(1), named(2)]
    file.append([line_of(task(3))])
    file.close()
    assert epochs_in(path) == [0, 0, 1, 1, 2, 2, 3]


def test_a_mark_that_goes_back_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write(path, epochs=4)
    path.write_text(path.read_text().replace('"epochs":2', '"epochs":0'))
    file = TraceFile(path, 4)
    file.close()
    assert [event["args"]["epochs"] for event in file.marks] == [1]
    assert epochs_in(path) == [0, 0]


def test_a_trace_without_a_mark_of_these_epochs_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for epochs, content in ((2, None), (1, 2), (9, b""), (9, b"something else\n"), (9, b"\0" * 99)):
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            write(path, epochs=5, first=content)
        file = TraceFile(path, epochs)
        file.close()
        assert epochs_in(path) == []
        assert file.names == file.marks == []


def test_where_nothing_is_traced_what_will_be_done_again_is_dropped_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write(path, epochs=5)
    cut(path, 2)
    assert epochs_in(path) == [0, 0, 1, 1]
    cut(path, 0)
    assert not path.exists()
    cut(path, 0)


def test_killed_at_any_byte_it_can_be_read_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prefix of what the system is asked to write, as it stands in the file then."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of thousands of files
    whole, path = tmp_path / "whole.json", tmp_path / "trace.json"
    write(whole, epochs=2)
    before = whole.read_bytes()
    write(whole, epochs=3)
    after = whole.read_bytes()
    assert after.startswith(before[:-4])
    begun = [before + after[len(before) : end] for end in range(len(before), len(after) + 1, 3)]
    for content in begun:
        path.write_bytes(content)
        assert [event["args"]["epoch"] for event in read(path) if event["ph"] == "X"] == [0, 0, 1, 1]
        TraceFile(path, 3).close()  # the mark of the third lies behind the bracket
        assert epochs_in(path) == [0, 0, 1, 1]
    for end in range(0, len(before), 7):
        path.write_bytes(before[:end])
        found = [event["args"]["epoch"] for event in read(path) if event["ph"] == "X"]
        assert found == [0, 0, 1, 1][: len(found)]
        TraceFile(path, 2).close()
        assert epochs_in(path) in ([], [0, 0], [0, 0, 1, 1])


def test_killed_between_two_writes_it_is_what_it_was_and_lines_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where these begin with a task and end with a mark, since no lane is new."""
    path = tmp_path / "trace.json"
    write(path, epochs=2)
    file = TraceFile(path, 2)
    before, found = path.read_bytes(), []
    pwrite = os.pwrite

    def seen(*arguments: Any) -> int:
        written = pwrite(*arguments)
        found.append(path.read_bytes())
        return written

    monkeypatch.setattr(os, "pwrite", seen)
    file.append([line_of(event) for event in (task(2), task(2), mark(3, 5.0, file.size))])
    monkeypatch.undo()
    file.close()
    between, _ = found
    assert between.startswith(before)
    path.write_bytes(between)
    TraceFile(path, 3).close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(("failing", "short"), [(1, 0), (1, 1), (1, 300), (2, 0), (2, 1)])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, short: int
) -> None:
    path = tmp_path / "trace.json"
    write(path, epochs=2)
    file = TraceFile(path, 2)
    before = path.read_bytes()
    monkeypatch.setattr(os, "pwrite", full(failing, short))
    with pytest.raises(OSError, match="No space"):
        file.append([line_of(task(2, "x" * 1000))])
    monkeypatch.undo()
    assert path.read_bytes() == before
    file.append([line_of(task(2))])
    file.close()
    assert epochs_in(path) == [0, 0, 1, 1, 2]


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, place: pwrite(file, bytes(content)[:7], place))
    write(tmp_path / "trace.json", epochs=3)
    monkeypatch.undo()
    assert epochs_in(tmp_path / "trace.json") == [0, 0, 1, 1, 2, 2]


def test_what_cannot_be_begun_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", full(1, 3))
    with pytest.raises(OSError, match="No space"):
        TraceFile(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_ends_it_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much of it stays JSON: a key is misspelt, a number another."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of thousands of files
    path = tmp_path / "trace.json"
    write(path, epochs=2)
    whole = path.read_bytes()
    events = list(read(path))
    for place in range(len(whole.split(b"\n")[0]) + 1, len(whole)):
        for bit in (place % 8, (place + 3) % 8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            found = list(read(path))
            assert [list(event) for event in found] == [list(event) for event in events[: len(found)]]
            file = TraceFile(path, 2)
            file.close()
            told = [event["args"]["epochs"] for event in file.marks]
            assert told == sorted(told)
            assert all({"ts", "args"} <= event.keys() and "bytes" in event["args"] for event in file.marks)
            assert all({"name", "pid", "tid"} <= event.keys() for event in file.names)


@pytest.mark.parametrize(
    "damage",
    [
        ('"ph":"X"', '"ph":"Y"'),
        ('"dur":2.5', '"dur":"2"'),
        ('"dur":2.5', '"dur":1e999'),
        ('"dur":2.5', '"dur":-1e999'),
        ('"dur":2.5', '"dur":NaN'),
        ('"pid":0', '"pid":0.5'),
        ('"pid":0', '"pid":true'),
        ('"epoch":1', '"epoch":null'),
        ('"kind":"graph"', '"kind":7'),
        ('"args":', '"arg":'),
    ],
)
def test_a_task_that_is_none_ends_it(tmp_path: Path, damage: tuple[str, str]) -> None:
    file = TraceFile(tmp_path / "trace.json")
    file.append([line_of(task(1)), line_of(task(1)).replace(*damage), line_of(task(1))])
    file.close()
    assert list(read(file.path)) == [task(1)]


def test_something_else_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"schema": 2, "traceEvents": [\n\n]}\n')
    with pytest.raises(RunDirectoryError, match=r"has schema 2, this version of dorylax reads up to 1"):
        list(read(path))
    path.write_text("[]")
    with pytest.raises(RunDirectoryError, match="is not a trace of a dorylax run: its first line should be"):
        list(read(path))
    with pytest.raises(RunDirectoryError, match="cannot be read") as caught:
        list(read(tmp_path / "none.json"))
    assert caught.value.refused


def full(failing: int, short: int) -> Callable[..., int]:
    """Of the writes from now on, this one puts so many bytes on the disk, and that is full then; shorter ones fit."""
    pwrite, calls = os.pwrite, [0]

    def write(file: int, content: Any, place: int) -> int:
        calls[0] += 1
        if calls[0] == failing and short:
            return pwrite(file, bytes(content)[:short], place)
        if calls[0] == failing + bool(short):
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(file, content, place)

    return write
